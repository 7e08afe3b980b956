#pragma once

#include "optpipe/core/random.hpp"
#include "optpipe/pipeline/problem.hpp"
#include "optpipe/program/lower.hpp"
#include "optpipe/schedule/pair.hpp"
#include "optpipe/schedule/schedule.hpp"
#include "optpipe/testing/executor_model.hpp"
#include "optpipe/testing/random_problem.hpp"
#include "oracle/random_pairs.hpp"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

/// Programs that are run on threads and on processes: small problems in which stashes must be offloaded.
namespace random_programs {

/// A problem on at most `ranks` ranks.
inline optpipe::problem problem(std::uint64_t seed, std::size_t ranks) {
    optpipe::random_numbers random{seed};
    const optpipe::testing::problem_ranges ranges{
        .ranks = ranks, .stages = 2 * ranks, .microbatches = 5, .cells = 5 * ranks, .offloading_percent = 80};
    return optpipe::testing::make_random_problem(random, ranges).problem;
}
/// Such a problem with pairs; with `is_graph`, perhaps with edges, groups, slices and microbatches that differ.
inline optpipe::problem with_pairs(std::uint64_t seed, std::size_t ranks, bool is_graph) {
    optpipe::random_numbers random{seed};
    const optpipe::testing::problem_ranges ranges{.ranks = ranks,
                                                  .stages = 2 * ranks,
                                                  .microbatches = 5,
                                                  .cells = 5 * ranks,
                                                  .storage_percent = 60,
                                                  .graph_percent = is_graph ? 100U : 0U};
    return oracle::with_random_pairs(random, optpipe::testing::make_random_problem(random, ranges).problem);
}
/// Number of weight gradients in a step.
inline std::size_t weights_of(const optpipe::problem& p) {
    std::size_t trained = 0;
    for (const auto& c : p.costs)
        trained += c.gradients == optpipe::gradient_kind::full ? 1 : 0;
    return trained * p.graph.microbatches();
}
/// Number of pairs in a schedule.
inline std::size_t pairs_of(const optpipe::schedule& s) {
    std::size_t pairs = 0;
    for (const auto& timed : s.operations)
        pairs += optpipe::is_second_part(timed.op) ? 1 : 0;
    return pairs;
}
/// The assignment of messages to lanes depends on the seed. `reduce`: whether gradients are reduced.
inline std::optional<optpipe::per_rank<optpipe::rank_program>>
lowered(const optpipe::problem& p, const optpipe::schedule& s, std::uint64_t seed, bool reduce = false) {
    auto programs = lower(p, s,
                          {.bytes_per_unit = 4.0,
                           .alignment = 1,
                           .message_bytes = 24,
                           .partial_bytes = 16,
                           .lanes = static_cast<optpipe::message_lanes>(seed % 3),
                           .update = true,
                           .reduce = reduce});
    if (!programs) return std::nullopt;
    return std::move(*programs);
}
/// Sleeps for a time that differs from operation to operation and run to run.
inline optpipe::testing::tracing_model::spend_time jitter(std::uint64_t seed) {
    return [seed](const optpipe::operation& op) {
        optpipe::random_numbers random{seed + 7919 * op.stage.value() + 104729 * op.microbatch.value() +
                                       static_cast<std::uint64_t>(op.kind)};
        if (random.chance(30)) std::this_thread::sleep_for(std::chrono::microseconds{random.below(200)});
    };
}

} // namespace random_programs
