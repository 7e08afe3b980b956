// Programs of problems that aren't plain, run on threads: every buffer has what was written for it.
#include "execution/random_programs.hpp"
#include "optpipe/execution/arenas.hpp"
#include "optpipe/execution/bound_program.hpp"
#include "optpipe/execution/measured.hpp"
#include "optpipe/execution/threads/run.hpp"
#include "optpipe/io/json.hpp"
#include "optpipe/program/check.hpp"
#include "optpipe/program/lower.hpp"
#include "optpipe/schedule/construct/within_memory.hpp"
#include "optpipe/schedule/time/measure.hpp"
#include "optpipe/schedule/time/simulate.hpp"
#include "optpipe/testing/executor_model.hpp"
#include "optpipe/testing/random_problem.hpp"
#include "oracle/random_cases.hpp"
#include "oracle/random_schedule.hpp"
#include "schedule/compiled/for_each_schedule.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace {

using namespace optpipe;
using namespace std::chrono_literals;
using optpipe::testing::tracing_model;

constexpr std::uint64_t first_seed = 6400;

/// Number of weight gradients in a step.
std::size_t weights_in(const problem& p) {
    const auto trained = std::count_if(p.costs.begin(), p.costs.end(),
                                       [](const stage_costs& c) { return c.gradients == gradient_kind::full; });
    return static_cast<std::size_t>(trained) * p.graph.microbatches();
}

/// Runs programs of the schedule in exactly the memory that they ask for, and checks what was computed and measured.
void run_and_check(const problem& p, const schedule& s, const per_rank<rank_program>& programs, std::uint64_t seed) {
    constexpr std::size_t steps = 2;
    threads::options exact;
    exact.patience = 20s;
    exact.record_times = true;
    exact.device_memory = per_rank<std::size_t>(programs.size());
    exact.host_memory = exact.device_memory;
    for (const auto& each : programs) {
        exact.device_memory[each.self] = each.device_bytes + each.message_bytes;
        exact.host_memory[each.self] = each.host_bytes;
    }
    threads::cluster cluster{p.graph.ranks(), exact};
    std::vector<tracing_model> models(p.graph.ranks(), tracing_model{p.graph.stages(), random_programs::jitter(seed)});
    const auto times = threads::run(
        programs, cluster, [&](rank r) -> tracing_model& { return models[r.position()]; }, steps);
    std::size_t weights = 0;
    for (const auto& m : models)
        weights += m.weights();
    CHECK(weights == steps * weights_in(p));
    for (const auto& each : times)
        CHECK(high_water(each, memory_arena::device) <= each.program->device_bytes);
    CHECK(measured_schedule(p.graph, times, 1ms).operations.size() == s.operations.size());
}

TEST_CASE("random graphs run on threads in no more than the memory of the plan") {
    for (std::uint64_t seed = first_seed; seed < first_seed + oracle::random_cases(80); ++seed) {
        CAPTURE(seed);
        random_numbers random{seed};
        const auto given = optpipe::testing::make_random_problem(
            random,
            {.ranks = 4, .stages = 8, .microbatches = 6, .cells = 30, .storage_percent = 40, .graph_percent = 100});
        const auto s = oracle::random_schedule(random, given);
        lowering_options how{.bytes_per_unit = 8.0, .alignment = 1, .message_bytes = 24};
        how.lanes = static_cast<message_lanes>(seed % 3);
        how.partial_bytes = 16;
        // Values are never split, and now and then don't fit.
        if (const auto programs = lower(given.problem, s, how)) run_and_check(given.problem, s, *programs, seed);
    }
}

TEST_CASE("what an edge holds is sent only where its owner owns the messages, too") {
    using execution::buffer_owner;
    const stage_costs c{duration{2}, duration{2}, duration{1}, memory_size{1}};
    const edges::any feeds{2, {{stage{0}, stage{1}, 1.0, memory_size{0.5}}}};
    per_stage<rank> ranks(2);
    ranks[stage{1}] = rank{1};
    const problem p{any_graph{2, 1, placement::map<>{ranks}, feeds}, per_stage<stage_costs>(2, c)};
    const auto s = simulate(p, one_at_a_time(p));
    REQUIRE(s);
    const auto programs = lower(p, *s, {.bytes_per_unit = 16.0, .alignment = 1});
    REQUIRE(programs);
    const auto& first = (*programs)[rank{0}];
    std::vector<std::byte> messages(first.message_bytes);
    execution::arena_memory room{.message = messages, .sizes = execution::sizes_of(first)};
    room.owners = {.stashes = buffer_owner::engine, .messages = buffer_owner::library};
    CHECK_THROWS_AS(execution::bound_program(first, room), error);
    room.owners.messages = buffer_owner::engine;
    CHECK(execution::bound_program(first, room).messages.size() == 2);
}

#if defined(OPTPIPE_HAS_JSON)
TEST_CASE("published problems run on threads by all methods, in exactly the memory of the plan") {
    for (const std::string name :
         {"mtp-small-p2-m3-d1-mem3.5", "slice-small-linear-p2-m2-k2-a050-mem1.75", "slice-small-v-p2-m2-k2-mem3",
          "unet-small-v-p2-m4-mem4.5", "vision-small-none-p3-m3-mem2.5", "vocab-small-p3-m3", "uneven-dynapipe"}) {
        CAPTURE(name);
        auto p = read_problem(OPTPIPE_SOURCE_DIR "/tests/data/format3/" + name + ".json");
        for (const rank r : p.graph.all_ranks())
            p.memory_limit[r] = memory_size::unlimited(); // more methods apply
        std::size_t runs = 0;
        compiled::for_each_schedule(p, [&](const std::string& method, const schedule& s) {
            CAPTURE(method);
            const auto programs =
                lower(p, s, {.bytes_per_unit = 4096.0, .alignment = 1, .message_bytes = 64, .partial_bytes = 32});
            REQUIRE(programs);
            REQUIRE(check_programs(*programs).empty());
            const auto planned = measure(p, s);
            for (const auto& each : *programs)
                CHECK(static_cast<double>(each.device_bytes) ==
                      doctest::Approx(4096.0 * planned.peak_memory[each.self].value()).epsilon(0.001));
            run_and_check(p, s, *programs, ++runs);
        });
        CHECK(runs > 1);
    }
}
#endif

} // namespace
