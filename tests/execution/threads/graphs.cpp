// Programs of problems that aren't plain, run on threads: every buffer has what was written for it.
#include "execution/random_programs.hpp"
#include "optpipe/execution/measured.hpp"
#include "optpipe/execution/threads/run.hpp"
#include "optpipe/program/lower.hpp"
#include "optpipe/testing/executor_model.hpp"
#include "optpipe/testing/random_problem.hpp"
#include "oracle/random_cases.hpp"
#include "oracle/random_schedule.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
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

TEST_CASE("random graphs run on threads in no more than the memory of the plan") {
    constexpr std::size_t steps = 2;
    for (std::uint64_t seed = first_seed; seed < first_seed + oracle::random_cases(80); ++seed) {
        CAPTURE(seed);
        random_numbers random{seed};
        const auto given = optpipe::testing::make_random_problem(
            random,
            {.ranks = 4, .stages = 8, .microbatches = 6, .cells = 30, .storage_percent = 40, .graph_percent = 100});
        const auto& p = given.problem;
        const auto s = oracle::random_schedule(random, given);
        lowering_options how{.bytes_per_unit = 8.0, .alignment = 1, .message_bytes = 24};
        how.lanes = static_cast<message_lanes>(seed % 3);
        how.partial_bytes = 16;
        const auto programs = lower(p, s, how);
        if (!programs) continue; // values are never split, and now and then don't fit
        threads::options exact;
        exact.patience = 20s;
        exact.record_times = true;
        exact.device_memory = per_rank<std::size_t>(programs->size());
        for (const auto& each : *programs)
            exact.device_memory[each.self] = each.device_bytes + each.message_bytes;
        threads::cluster cluster{p.graph.ranks(), exact};
        std::vector<tracing_model> models(p.graph.ranks(),
                                          tracing_model{p.graph.stages(), random_programs::jitter(seed)});
        const auto times = threads::run(
            *programs, cluster, [&](rank r) -> tracing_model& { return models[r.position()]; }, steps);
        std::size_t weights = 0;
        for (const auto& m : models)
            weights += m.weights();
        CHECK(weights == steps * weights_in(p));
        for (const auto& each : times)
            CHECK(high_water(each, memory_arena::device) <= each.program->device_bytes);
        CHECK(measured_schedule(p.graph, times, 1ms).operations.size() == s.operations.size());
    }
}

} // namespace
