#pragma once

#include "optpipe/schedule/builders/builder.hpp"
#include "optpipe/schedule/builders/one_forward_one_backward.hpp"
#include "optpipe/schedule/construct/uniform_storage.hpp"

#include <cstddef>
#include <optional>
#include <string_view>

namespace optpipe {

/// 1F1B in which every stage keeps as little as possible, similar to Mario (Liu et al., 2025). A stage recomputes while
/// it waits for the gradient. The last stage recomputes nothing: its backward follows its forward at once. Nothing is
/// offloaded.
///
/// Needs one stage per rank. The last stage needs a storage option that keeps everything. All other stages need an
/// option that recomputes ahead of the backward.
struct mario_builder {
    static constexpr std::string_view name = "mario";

    template <pipeline_graph Graph>
    [[nodiscard]] constexpr outcome<basic_order<Graph>> operator()(const basic_problem<Graph>& p) const {
        if (!one_stage_per_rank(p.graph)) return does_not_apply("Mario is for one stage per rank");
        storage_by_stage<Graph::stage_extent> options(p.graph.stages());
        for (const stage s : p.graph.all_stages()) {
            const auto found = p.is_last(s) ? kept(p, s) : most_frugal(p, s);
            if (!found)
                return does_not_apply({"stage ", s.value(), " has no storage option that ",
                                       p.is_last(s) ? "keeps all" : "recomputes ahead of the backward"});
            options[s] = *found;
        }
        return with_storage(p, options, one_forward_one_backward(p.graph));
    }

private:
    template <pipeline_graph Graph>
    static constexpr std::optional<std::size_t> most_frugal(const basic_problem<Graph>& p, stage s) {
        std::optional<std::size_t> best;
        for (std::size_t i = 0; i < p.storage_options(s); ++i) {
            const auto o = p.storage_of(s, i);
            if (o.offloads() || !o.recomputes()) continue;
            if (!best || o.held < p.storage_of(s, *best).held) best = i;
        }
        return best;
    }
    template <pipeline_graph Graph>
    static constexpr std::optional<std::size_t> kept(const basic_problem<Graph>& p, stage s) {
        for (std::size_t i = 0; i < p.storage_options(s); ++i) {
            const auto o = p.storage_of(s, i);
            if (!o.offloads() && o.extra_work() <= duration{}) return i;
        }
        return std::nullopt;
    }
};
inline constexpr mario_builder mario{};

} // namespace optpipe
