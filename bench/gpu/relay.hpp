#pragma once

#include "../../examples/relay_stage.hpp"
#include <optpipe/core/container.hpp>
#include <optpipe/core/error.hpp>
#include <optpipe/execution/nccl/lowering.hpp>
#include <optpipe/pipeline/make_problem.hpp>
#include <optpipe/program/lower.hpp>
#include <optpipe/schedule/builders/zero_bubble_h1.hpp>
#include <optpipe/schedule/time/evaluate.hpp>

#include <cstddef>
#include <utility>

namespace gpu_bench {

inline constexpr std::size_t relay_microbatches = 8;
inline constexpr std::size_t relay_bytes = std::size_t{1} << 20U;

/// ZB-H1 of stages that pass on their input of `bytes` bytes, one on each rank.
[[nodiscard]] inline optpipe::per_rank<optpipe::rank_program> relay_programs(std::size_t ranks,
                                                                             std::size_t bytes = relay_bytes) {
    using namespace optpipe;
    const duration unit{1.0};
    const stage_costs each{unit, unit, unit, memory_size{1}, memory_size{1}};
    const auto p =
        to_problem(make_problem(graph<dynamic, relay_microbatches>{ranks, relay_microbatches}, uniform_memory{each}));
    const auto plan = build_schedule(p, zero_bubble_h1).value();
    auto how = nccl::lowering_defaults();
    how.bytes_per_unit = static_cast<double>(bytes);
    how.message_bytes = bytes;
    return lower(p, plan, how).value();
}

} // namespace gpu_bench
