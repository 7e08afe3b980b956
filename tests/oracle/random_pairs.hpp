#pragma once

#include "optpipe/pipeline/problem.hpp"
#include "optpipe/schedule/pair.hpp"
#include "optpipe/schedule/schedule.hpp"
#include "optpipe/schedule/time/simulate.hpp"
#include "oracle/random_problem.hpp"

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

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

/// The schedule with every pair of neighbours merged that may be, whether or not that makes the step shorter.
inline optpipe::schedule with_all_pairs(const optpipe::problem& p, optpipe::schedule s) {
    using namespace optpipe;
    auto merged = order_of(s);
    std::vector<std::size_t> last(p.graph.ranks(), merged.operations.size());
    for (std::size_t i = 0; i < merged.operations.size(); ++i) {
        const auto now = merged.operations[i];
        if (is_transfer(now.kind)) continue;
        const auto before = std::exchange(last[p.rank_of(now.stage).position()], i);
        if (before == merged.operations.size() || merged.operations[before].is_paired) continue;
        auto f = merged.operations[before];
        auto b = now;
        if (f.kind != operation_kind::forward) std::swap(f, b);
        if (!overlap_of(p, f, b)) continue;
        // The first of the two moves before the second.
        auto tried = merged;
        const auto first = tried.operations.begin() + static_cast<std::ptrdiff_t>(before);
        const auto second = tried.operations.begin() + static_cast<std::ptrdiff_t>(i);
        std::rotate(first, first + 1, second);
        f.is_paired = b.is_paired = true;
        second[-1] = f;
        *second = b;
        auto timed = simulate(p, tried);
        if (!timed) continue;
        merged = std::move(tried);
        s = *std::move(timed);
        for (auto& place : last)
            if (place > before && place < i) --place;
    }
    return s;
}

} // namespace oracle
