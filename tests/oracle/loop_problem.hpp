#pragma once

#include "optpipe/pipeline/problem.hpp"
#include "oracle/golden.hpp"

#include <cstddef>

namespace oracle {

/// A problem with stage s on rank s mod R. The costs and the stash of a rank are split evenly over its chunks.
inline optpipe::problem loop_problem(std::size_t ranks, std::size_t microbatches, std::size_t chunks, const profile& c,
                                     double weight_share = 1.0, double stash = 1.0) {
    using namespace optpipe;
    per_stage<rank> map(ranks * chunks);
    for (const stage s : map.indices())
        map[s] = rank{s.position() % ranks};
    const double share = 1.0 / static_cast<double>(chunks);
    const stage_costs each{
        duration{share * c.forward}, duration{share * c.backward_input},        duration{share * c.backward_weight},
        memory_size{share * stash},  memory_size{share * stash * weight_share}, {}};
    problem p{any_graph{ranks, microbatches, placement::map<>{map}}, per_stage<stage_costs>(map.size(), each)};
    p.p2p = hop_times<>{duration{c.p2p}};
    return p;
}

} // namespace oracle
