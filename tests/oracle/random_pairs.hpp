#pragma once

#include "optpipe/pipeline/problem.hpp"
#include "optpipe/schedule/pair.hpp"
#include "optpipe/schedule/schedule.hpp"
#include "optpipe/schedule/time/measure.hpp"
#include "optpipe/schedule/time/simulate.hpp"
#include "oracle/random_problem.hpp"
#include "oracle/random_schedule.hpp"

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

/// Every rank has the memory that a random schedule needs, if it frees all of it itself: the exact search doesn't wait
/// for memory. Of several random schedules, the one that needs the least memory counts. The one storage option of each
/// stage may recompute within the backward.
inline optpipe::problem with_random_memory(random_numbers& random, optpipe::problem p, int schedules = 1) {
    using namespace optpipe;
    bool frees_own_memory = true;
    for (const stage s : p.graph.all_stages()) {
        p.costs[s].weight_stash = std::min(p.costs[s].weight_stash, p.costs[s].activation);
        auto option = keep_stash(p.costs[s]);
        if (random.chance(30) && p.costs[s].gradients != gradient_kind::none) {
            option.held = 0.5 * option.held;
            option.backward_extra = duration{1.0};
        }
        p.set_storage(s, std::vector<storage_option>{option});
        p.graph.for_each_edge_out_of(s, [&](const edge& e) {
            frees_own_memory = frees_own_memory && (e.held <= memory_size{} || p.rank_of(e.from) == p.rank_of(e.to));
        });
    }
    for (const rank r : p.graph.all_ranks())
        p.memory_limit[r] = memory_size::unlimited();
    auto limits = p.memory_limit;
    auto least = memory_size::unlimited();
    for (int i = 0; i < schedules && frees_own_memory; ++i) {
        const auto drawn = simulate(p, random_order(random, p));
        if (!drawn) continue;
        const auto peaks = measure(p, *drawn).peak_memory;
        memory_size sum{};
        for (const memory_size peak : peaks)
            sum += peak;
        if (sum >= least) continue;
        least = sum;
        for (const rank r : p.graph.all_ranks())
            limits[r] = std::max(memory_size{0.5}, peaks[r]);
    }
    p.memory_limit = limits;
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
