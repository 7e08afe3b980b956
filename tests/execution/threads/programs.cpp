#include "optpipe/execution/threads/run.hpp"
#include "optpipe/schedule/builders/adaptive.hpp"
#include "optpipe/schedule/builders/gpipe.hpp"
#include "optpipe/schedule/builders/one_forward_one_backward.hpp"
#include "optpipe/schedule/builders/pipe_offload.hpp"
#include "optpipe/schedule/evaluate.hpp"
#include "optpipe/schedule/lower.hpp"
#include "optpipe/testing/executor_model.hpp"
#include "optpipe/testing/random_problem.hpp"

#include <doctest/doctest.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <thread>
#include <vector>

namespace {

using namespace std::chrono_literals;
using optpipe::lowering_options;
using optpipe::memory_arena;
using optpipe::message_lanes;
using optpipe::rank;
using optpipe::rank_program;
using optpipe::testing::tracing_model;
namespace threads = optpipe::threads;

constexpr std::uint64_t first_seed = 9300;
constexpr optpipe::testing::problem_ranges ranges{
    .ranks = 4, .stages = 8, .microbatches = 5, .cells = 20, .offloading_percent = 80};

/// Exactly what the programs need, and not a byte more.
threads::options exact_memory(const std::vector<rank_program>& programs) {
    threads::options how;
    how.patience = 20s;
    how.record_times = true;
    how.device_memory = optpipe::per_rank<std::size_t>(programs.size());
    how.host_memory = how.device_memory;
    for (const auto& each : programs) {
        how.device_memory[each.self] = each.device_bytes + each.message_bytes;
        how.host_memory[each.self] = each.host_bytes;
    }
    return how;
}

/// Sleeps for a time that differs from operation to operation and run to run.
tracing_model::spend_time jitter(std::uint64_t seed) {
    return [seed](const optpipe::operation& op) {
        optpipe::random_numbers random{seed + 7919 * op.stage.value() + 104729 * op.microbatch.value() +
                                       static_cast<std::uint64_t>(op.kind)};
        if (random.chance(30)) std::this_thread::sleep_for(std::chrono::microseconds{random.below(200)});
    };
}

std::vector<tracing_model> models_for(const optpipe::problem& p, std::uint64_t seed) {
    return std::vector<tracing_model>(p.graph.ranks(), tracing_model{p.graph.stages(), jitter(seed)});
}

void run_it(const optpipe::problem& p, const optpipe::schedule& s, message_lanes lanes, std::uint64_t seed) {
    const auto programs = lower(p, s, {.bytes_per_unit = 4.0, .message_bytes = 24, .lanes = lanes, .update = true});
    if (!programs) return;
    auto how = exact_memory(*programs);
    if (seed % 3 == 0) {
        how.copies = threads::planned_copies(p, 100us);
        how.messages = threads::planned_messages(p, 100us);
        how.transfer = p.transfer;
    }
    threads::cluster cluster{p.graph.ranks(), how};
    auto models = models_for(p, seed);
    constexpr std::size_t steps = 2;
    const auto times = threads::run(
        *programs, cluster, [&](rank r) -> tracing_model& { return models[r.position()]; }, steps);
    std::size_t weights = 0;
    std::size_t updates = 0;
    for (const auto& m : models) {
        weights += m.weights();
        updates += m.updates();
    }
    CHECK(weights == steps * p.graph.stages() * p.graph.microbatches());
    CHECK(updates == steps * p.graph.stages());
    const auto planned = measure(p, s);
    for (const auto& each : times) {
        REQUIRE(each.times.size() == each.program->instructions.size());
        CHECK(high_water(each, memory_arena::device) <= each.program->device_bytes);
        CHECK(high_water(each, memory_arena::host) <= each.program->host_bytes);
        // Without transfers, the order of one lane alone decides.
        if (planned.offloads == 0) CHECK(high_water(each, memory_arena::device) == each.program->device_bytes);
    }
    const auto measured = measured_schedule(p.graph, times, std::chrono::milliseconds{1});
    CHECK(measured.operations.size() == s.operations.size());
}

TEST_CASE("random programs with offloading run in exactly the memory of the plan, whatever the timing") {
    std::size_t runs = 0;
    std::size_t travels = 0;
    for (std::uint64_t seed = first_seed; seed < first_seed + 24; ++seed) {
        CAPTURE(seed);
        optpipe::random_numbers random{seed};
        const auto p = optpipe::testing::make_random_problem(random, ranges).problem;
        const auto lanes = static_cast<message_lanes>(seed % 3);
        const auto try_it = [&](const auto& build) {
            const std::string name{build.name};
            CAPTURE(name);
            const auto s = build_schedule(p, build);
            if (!s) return;
            ++runs;
            travels += measure(p, *s).offloads > 0 ? 1 : 0;
            run_it(p, *s, lanes, seed);
        };
        try_it(optpipe::adaptive);
        try_it(optpipe::pipe_offload);
        if (seed % 4 == 0) try_it(optpipe::gpipe);
        if (seed % 4 == 1) try_it(optpipe::one_forward_one_backward);
    }
    MESSAGE(runs << " runs, " << travels << " of them with offloading");
    CHECK(runs > 24);
    CHECK(travels > 5);
}

} // namespace
