#pragma once

#include "optpipe/core/tolerance.hpp"
#include "optpipe/schedule/builders/builder.hpp"
#include "optpipe/schedule/builders/one_forward_one_backward.hpp"
#include "optpipe/schedule/construct/uniform_storage.hpp"

#include <algorithm>
#include <cstddef>
#include <optional>
#include <string_view>

namespace optpipe {

/// 1F1B in which each stage recomputes as little as memory permits, similar to AdaPipe (Sun et al., 2024). Each stage
/// uses one storage option for all microbatches: the option with the least extra work that fits. In contrast to
/// AdaPipe, this builder moves no layers between stages. Nothing is offloaded.
///
/// Needs one stage per rank. Refuses with `over_memory` if no option of a stage fits.
struct adapipe_builder {
    static constexpr std::string_view name = "adapipe";

    template <pipeline_graph Graph>
    [[nodiscard]] constexpr outcome<basic_order<Graph>> operator()(const basic_problem<Graph>& p) const {
        if (!one_stage_per_rank(p.graph)) return does_not_apply("AdaPipe is for one stage per rank");
        storage_by_stage<Graph::stage_extent> options(p.graph.stages());
        for (const stage s : p.graph.all_stages()) {
            const auto least = least_recomputation(p, s);
            if (!least) return lacks_memory(p, s);
            options[s] = *least;
        }
        return with_storage(p, options, one_forward_one_backward(p.graph));
    }

private:
    /// The memory of 1F1B on the rank of `s`, if stage `s` uses only the option `o`.
    template <pipeline_graph Graph>
    static constexpr memory_size needed(const basic_problem<Graph>& p, stage s, const storage_option& o) {
        const auto stashes = std::min(p.graph.stages() - s.position(), p.graph.microbatches());
        return static_cast<double>(stashes - 1) * o.held + std::max(o.held, o.restored(p.costs[s]));
    }
    template <pipeline_graph Graph>
    static constexpr std::optional<std::size_t> least_recomputation(const basic_problem<Graph>& p, stage s) {
        const auto limit = p.memory_limit[p.rank_of(s)] + tolerance{}.at(p.memory_scale());
        std::optional<std::size_t> best;
        for (std::size_t i = 0; i < p.storage_options(s); ++i) {
            const auto o = p.storage_of(s, i);
            if (o.offloads() || needed(p, s, o) > limit) continue;
            if (!best || o.extra_work() < p.storage_of(s, *best).extra_work()) best = i;
        }
        return best;
    }
    template <pipeline_graph Graph> static constexpr refusal lacks_memory(const basic_problem<Graph>& p, stage s) {
        refusal why;
        why.reason = refusal_reason::over_memory;
        why.rank = p.rank_of(s);
        why.needed = memory_size::unlimited();
        why.limit = p.memory_limit[why.rank];
        for (std::size_t i = 0; i < p.storage_options(s); ++i)
            if (!p.storage_of(s, i).offloads()) why.needed = std::min(why.needed, needed(p, s, p.storage_of(s, i)));
        if (!why.needed.is_unlimited()) return why;
        why = {};
        why.sentence = {"stage ", s.value(), " has no storage option without a transfer"};
        return why;
    }
};
inline constexpr adapipe_builder adapipe{};

} // namespace optpipe
