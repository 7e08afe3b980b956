#pragma once

#include "optpipe/core/random.hpp"
#include "optpipe/pipeline/problem.hpp"
#include "optpipe/program/lower.hpp"
#include "optpipe/testing/executor_model.hpp"
#include "optpipe/testing/random_problem.hpp"

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
/// The assignment of messages to lanes depends on the seed. `reduce`: whether gradients are reduced.
inline std::optional<optpipe::per_rank<optpipe::rank_program>>
lowered(const optpipe::problem& p, const optpipe::schedule& s, std::uint64_t seed, bool reduce = false) {
    auto programs = lower(p, s,
                          {.bytes_per_unit = 4.0,
                           .alignment = 1,
                           .message_bytes = 24,
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
