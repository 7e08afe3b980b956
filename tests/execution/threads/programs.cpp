#include "execution/peak_gate.hpp"
#include "execution/quick_adaptive.hpp"
#include "execution/random_programs.hpp"
#include "optpipe/execution/threads/run.hpp"
#include "optpipe/program/lower.hpp"
#include "optpipe/schedule/builders/gpipe.hpp"
#include "optpipe/schedule/builders/one_forward_one_backward.hpp"
#include "optpipe/schedule/builders/pipe_offload.hpp"
#include "optpipe/schedule/time/evaluate.hpp"
#include "optpipe/testing/executor_model.hpp"
#include "oracle/random_pairs.hpp"

#include <doctest/doctest.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace {

using namespace std::chrono_literals;
using optpipe::memory_arena;
using optpipe::per_rank;
using optpipe::rank;
using optpipe::rank_program;
using optpipe::testing::tracing_model;
namespace threads = optpipe::threads;

constexpr std::uint64_t first_seed = 9300;
constexpr std::size_t most_ranks = 4;
/// Exactly the memory that the programs need.
threads::options exact_memory(const per_rank<rank_program>& programs) {
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

std::vector<tracing_model> models_for(const optpipe::problem& p, std::uint64_t seed) {
    return std::vector<tracing_model>(p.graph.ranks(), tracing_model{p.graph.stages(), random_programs::jitter(seed)});
}

/// The computations of a rank, in the order in which they start; the backward of a pair follows its forward.
std::string computed_by(rank r, const optpipe::schedule& s) {
    std::string names;
    const auto by_rank = operations_by_rank(s);
    for (const auto& timed : by_rank[r])
        if (!is_transfer(timed.op.kind)) names += to_string(timed.op) + (timed.op.is_paired ? "+ " : " ");
    return names;
}

void run_it(const optpipe::problem& p, const optpipe::schedule& s, std::uint64_t seed) {
    const bool reduces = seed % 2 == 0;
    const auto programs = random_programs::lowered(p, s, seed, reduces);
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
    std::size_t pairs = 0;
    std::size_t updates = 0;
    std::size_t reductions = 0;
    for (const auto& m : models) {
        weights += m.weights();
        pairs += m.pairs();
        updates += m.updates();
        reductions += m.reductions();
    }
    CHECK(weights == steps * random_programs::weights_of(p));
    CHECK(updates * p.graph.microbatches() == weights);
    CHECK(reductions == (reduces ? updates : 0));
    CHECK(pairs == steps * random_programs::pairs_of(s));
    for (const auto& each : times) {
        REQUIRE(each.times.size() == each.program->instructions.size());
        CHECK(high_water(each, memory_arena::device) <= each.program->device_bytes);
        CHECK(high_water(each, memory_arena::host) <= each.program->host_bytes);
    }
    const auto measured = measured_schedule(p.graph, times, std::chrono::milliseconds{1});
    CHECK(measured.operations.size() == s.operations.size());
    for (const rank r : p.graph.all_ranks())
        CHECK(computed_by(r, measured) == computed_by(r, s));
}

/// One step in which operations that free memory of the plan's peak wait for all operations of the peak.
void run_at_the_peak(const optpipe::problem& p, const optpipe::schedule& s, std::uint64_t seed) {
    const auto programs = random_programs::lowered(p, s, seed);
    if (!programs) return;
    std::vector<std::unique_ptr<peak_gate>> gates;
    std::vector<tracing_model> models;
    for (const auto& each : *programs) {
        auto* gate = gates.emplace_back(std::make_unique<peak_gate>(p, s, each)).get();
        models.emplace_back(p.graph.stages(), [gate, sleep = random_programs::jitter(seed)](const auto& op) {
            gate->pass(op);
            sleep(op);
        });
    }
    auto how = exact_memory(*programs);
    how.copies = [&](rank r, const optpipe::task_label& what, std::size_t) {
        return gates[r.position()]->pass_copy(what.op);
    };
    threads::cluster cluster{p.graph.ranks(), how};
    const auto times = threads::run(*programs, cluster, [&](rank r) -> tracing_model& { return models[r.position()]; });
    for (const auto& each : times) {
        CHECK(high_water(each, memory_arena::device) == each.program->device_bytes);
        CHECK(high_water(each, memory_arena::host) == each.program->host_bytes);
    }
}

/// Calls `visit(problem, schedule, seed)` for schedules of random problems by some builders. Checks that there are
/// enough.
template <class Visit> void for_each_random_schedule(std::uint64_t seeds, const Visit& visit) {
    std::size_t runs = 0;
    std::size_t offloads = 0;
    for (std::uint64_t seed = first_seed; seed < first_seed + seeds; ++seed) {
        CAPTURE(seed);
        const auto p = random_programs::problem(seed, most_ranks);
        const auto try_it = [&](const auto& build) {
            const std::string name{build.name};
            CAPTURE(name);
            const auto s = build_schedule(p, build);
            if (!s) return;
            ++runs;
            offloads += measure(p, *s).offloads > 0 ? 1 : 0;
            visit(p, *s, seed);
        };
        try_it(quick_adaptive);
        try_it(optpipe::pipe_offload);
        if (seed % 4 == 0) try_it(optpipe::gpipe);
        if (seed % 4 == 1) try_it(optpipe::one_forward_one_backward);
    }
    MESSAGE(runs << " runs, " << offloads << " of them with offloading");
    CHECK(runs > seeds);
    CHECK(offloads > seeds / 5);
}

TEST_CASE("random programs with offloading run in no more than the memory of the plan, whatever the timing") {
    for_each_random_schedule(24, run_it);
}
/// Calls `visit(problem, schedule, seed)` for schedules with pairs.
template <class Visit> void for_each_schedule_with_pairs(bool is_graph, const Visit& visit) {
    std::size_t runs = 0;
    std::size_t pairs = 0;
    for (std::uint64_t seed = first_seed; seed < first_seed + 40; ++seed) {
        CAPTURE(seed);
        const auto p = random_programs::with_pairs(seed, most_ranks, is_graph);
        const auto plain = build_schedule(p, quick_adaptive);
        if (!plain) continue;
        const auto s = oracle::with_all_pairs(p, *plain);
        if (!has_pairs(s.operations)) continue;
        ++runs;
        pairs += random_programs::pairs_of(s);
        visit(p, s, seed);
    }
    MESSAGE(runs << " runs with " << pairs << " pairs");
    CHECK(runs > 6);
}

TEST_CASE("programs with pairs run in the order of the plan, and in no more than its memory, whatever the timing") {
    for_each_schedule_with_pairs(false, run_it);
    for_each_schedule_with_pairs(true, run_it);
}
TEST_CASE("and what programs with pairs hold at once is the peak of the plan, to the byte") {
    for_each_schedule_with_pairs(false, run_at_the_peak);
}
TEST_CASE("and what they hold at once is the peak of the plan, to the byte, on the device and on the host") {
    for_each_random_schedule(24, run_at_the_peak);
}

} // namespace
