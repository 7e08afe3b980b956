#pragma once

#include "optpipe/pipeline/make_problem.hpp"
#include "optpipe/schedule/builders/adaptive.hpp"
#include "optpipe/schedule/evaluate.hpp"
#include "optpipe/schedule/lower.hpp"

#include <vector>

/// Four ranks, one stage each, with stashes that have to travel.
namespace offloading {

inline optpipe::problem problem() {
    const auto unit = optpipe::duration{1};
    const optpipe::stage_costs costs{unit,
                                     unit,
                                     unit,
                                     optpipe::memory_size{1},
                                     optpipe::memory_size{0.5},
                                     optpipe::transfer_times{0.5 * unit, 0.5 * unit}};
    auto p =
        to_problem(make_problem(optpipe::graph<4, 8>{}, optpipe::uniform_memory{costs}, optpipe::memory_size{2.0}));
    p.transfer.engines = 2;
    return p;
}
inline std::vector<optpipe::rank_program> programs() {
    const auto p = problem();
    auto quick = optpipe::adaptive;
    quick.effort = 100;
    return *lower(p, *build_schedule(p, quick), {.bytes_per_unit = 64.0, .message_bytes = 24});
}

} // namespace offloading
