#pragma once

#include "optpipe/core/container.hpp"
#include "optpipe/core/quantity.hpp"
#include "optpipe/core/tolerance.hpp"
#include "optpipe/pipeline/problem.hpp"
#include "optpipe/schedule/operation.hpp"

#include <algorithm>
#include <cstddef>
#include <vector>

namespace optpipe {

/// The memory of each rank if every stash were kept, and nothing were freed.
[[nodiscard]] inline per_rank<memory_size> all_memory(const problem& p) {
    per_rank<memory_size> all(p.graph.ranks());
    for (const stage s : p.graph.all_stages())
        for (const microbatch m : p.graph.all_microbatches()) {
            auto& own = all[p.rank_of(s)];
            const auto costs = p.cost(s, m);
            own += std::max(costs.activation, costs.weight_stash);
            own += memory_effect_beside_stash(p, forward(s, m)).acquired_at_start;
            if (p.costs[s].gradients != gradient_kind::none)
                own += memory_effect_beside_stash(p, backward_input(s, m)).acquired_at_start;
        }
    return all;
}

/// The storage options that stages may need in an optimal schedule. An option isn't needed if another option of the
/// stage is never worse. For example, a rank with memory for all its stashes keeps all of them.
class needed_options {
public:
    explicit needed_options(const problem& p) : all_memory_{optpipe::all_memory(p)} {
        const auto slack = tolerance{}.at(p.memory_scale());
        for (const rank r : p.graph.all_ranks())
            is_limited_.push_back(all_memory_[r] > p.memory_limit[r] + slack ? 1 : 0);
        for (const stage s : p.graph.all_stages())
            add(p, s);
    }

    [[nodiscard]] memory_size all_memory(rank r) const { return all_memory_[r]; }
    /// Whether the rank's memory is smaller than `all_memory`.
    [[nodiscard]] bool is_limited(rank r) const { return is_limited_[r.position()] != 0; }
    /// The options that stage `s` may need, in the order of its list.
    [[nodiscard]] const std::vector<storage_index>& of(stage s) const { return needed_[s.position()]; }
    /// A needed option that is no worse than `o`, or `o` itself if needed.
    [[nodiscard]] storage_index replacement(stage s, storage_index o) const { return replacement_[s.position()][o]; }

private:
    void add(const problem& p, stage s) {
        const auto count = p.storage_options(s);
        auto& needed = needed_.emplace_back();
        for (std::size_t o = 0; o < count; ++o) {
            bool is_needed = true;
            for (std::size_t other = 0; other < count && is_needed; ++other)
                is_needed = other == o || !is_no_worse(p, s, other, o) || (o < other && is_no_worse(p, s, o, other));
            if (is_needed) needed.push_back(static_cast<storage_index>(o));
        }
        auto& replacement = replacement_.emplace_back();
        for (std::size_t o = 0; o < count; ++o)
            replacement.push_back(*std::find_if(needed.begin(), needed.end(),
                                                [&](storage_index other) { return is_no_worse(p, s, other, o); }));
    }
    /// Whether every schedule stays valid with `first` in place of `second`, with the same starts and no later ends.
    [[nodiscard]] bool is_no_worse(const problem& p, stage s, std::size_t first, std::size_t second) const {
        const auto& a = p.storage_of(s, first);
        const auto& b = p.storage_of(s, second);
        const bool is_recomputed_faster = a.backward_extra <= b.backward_extra && a.recompute <= b.recompute;
        const bool is_moved_faster =
            !a.offloads() || (b.offloads() && a.transfer_size <= b.transfer_size &&
                              a.transfer->offload <= b.transfer->offload && a.transfer->reload <= b.transfer->reload);
        const auto& c = p.costs[s];
        const bool is_smaller =
            !is_limited(p.rank_of(s)) ||
            (a.held <= b.held && a.left_on_device() <= b.left_on_device() && a.restored(c) <= b.restored(c));
        return is_recomputed_faster && is_moved_faster && is_smaller;
    }

    per_rank<memory_size> all_memory_;
    /// Indexed by rank.
    std::vector<char> is_limited_{};
    /// Indexed by stage. The lists in `replacement_` are indexed by option.
    std::vector<std::vector<storage_index>> needed_{};
    std::vector<std::vector<storage_index>> replacement_{};
};

} // namespace optpipe
