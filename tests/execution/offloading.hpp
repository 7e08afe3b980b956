#pragma once

#include "optpipe/pipeline/make_problem.hpp"
#include "optpipe/schedule/builders/adaptive.hpp"
#include "optpipe/schedule/evaluate.hpp"
#include "optpipe/schedule/lower.hpp"

#include <cstddef>
#include <vector>

/// One stage per rank, with stashes that have to travel.
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
/// What is tested is how they run and fail, so little effort makes them.
inline std::vector<optpipe::rank_program> programs(std::size_t ranks = 4) {
    const auto p = problem(ranks);
    auto quick = optpipe::adaptive;
    quick.effort = 100;
    return *lower(p, *build_schedule(p, quick), {.bytes_per_unit = 64.0, .message_bytes = 24});
}

} // namespace offloading
