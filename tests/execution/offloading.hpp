#pragma once

#include "execution/quick_adaptive.hpp"
#include "optpipe/pipeline/make_problem.hpp"
#include "optpipe/program/lower.hpp"
#include "optpipe/schedule/time/evaluate.hpp"

#include <cstddef>
#include <vector>

/// One stage per rank, with stashes that must be offloaded.
namespace offloading {

inline optpipe::problem problem(std::size_t ranks = 4) {
    const auto unit = optpipe::duration{1};
    const optpipe::stage_costs costs{unit,
                                     unit,
                                     unit,
                                     optpipe::memory_size{1},
                                     optpipe::memory_size{0.5},
                                     optpipe::transfer_times{0.5 * unit, 0.5 * unit}};
    using optpipe::dynamic;
    auto p = to_problem(make_problem(optpipe::graph<dynamic, dynamic>{ranks, 8}, optpipe::uniform_memory{costs},
                                     optpipe::memory_size{2.0}));
    p.transfer.engines = 2;
    return p;
}
inline optpipe::per_rank<optpipe::rank_program> programs(std::size_t ranks = 4) {
    const auto p = problem(ranks);
    return *lower(p, *build_schedule(p, quick_adaptive), {.bytes_per_unit = 64.0, .message_bytes = 24});
}

} // namespace offloading
