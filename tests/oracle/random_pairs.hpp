#pragma once

#include "optpipe/pipeline/problem.hpp"
#include "oracle/random_problem.hpp"

#include <algorithm>
#include <utility>

namespace oracle {

/// The problem with pairs drawn among those that its ranks can run. Their durations are between that of the longer part
/// and that of both in succession, on the grid of whole and half numbers if those of the parts are.
inline optpipe::problem with_random_pairs(random_numbers& random, optpipe::problem p) {
    using namespace optpipe;
    for (const stage f : p.graph.all_stages())
        for (const stage b : p.graph.all_stages())
            for (const auto kind : {overlap_kind::backward, overlap_kind::backward_input}) {
                const auto& back = p.costs[b];
                const bool is_whole = kind == overlap_kind::backward;
                if (p.rank_of(f) != p.rank_of(b) || back.gradients == gradient_kind::none || random.chance(30))
                    continue;
                if (is_whole && back.gradients == gradient_kind::input) continue;
                const auto length = is_whole ? back.backward() : back.backward_input;
                const auto least = std::max(p.costs[f].forward, length);
                const auto most = p.costs[f].forward + length;
                const double share = 0.5 * static_cast<double>(random.below(3));
                p.overlaps.add({f, b, kind, least + share * (most - least),
                                random.chance(30) && p.memory_limit[p.rank_of(f)].is_unlimited() ? memory_size{0.5}
                                                                                                 : memory_size{}});
            }
    return p;
}

} // namespace oracle
