#pragma once

#include "optpipe/pipeline/problem.hpp"

#include <cstddef>

/// Two equal stages per rank, in v or loop placement: F, I and W of a stage last 1, and each forward of a rank and each
/// of its full backwards can be a pair of half of `pair`.
inline optpipe::problem pair_problem(std::size_t ranks, std::size_t microbatches, double pair, bool is_v) {
    using namespace optpipe;
    per_stage<rank> ranks_of(2 * ranks);
    for (const stage s : ranks_of.indices())
        ranks_of[s] = rank{is_v && s.position() >= ranks ? 2 * ranks - 1 - s.position() : s.position() % ranks};
    const stage_costs unit{.forward = duration{1.0},
                           .backward_input = duration{1.0},
                           .backward_weight = duration{1.0},
                           .activation = memory_size{1.0},
                           .weight_stash = memory_size{0.5}};
    problem p{any_graph{ranks, microbatches, placement::map<>{ranks_of}}, per_stage<stage_costs>(2 * ranks, unit)};
    for (const stage f : p.graph.all_stages())
        for (const stage b : p.graph.all_stages())
            if (p.rank_of(f) == p.rank_of(b))
                p.overlaps.add({f, b, overlap_kind::backward, duration{0.5 * pair}, memory_size{}});
    return p;
}
