#pragma once

#include "optpipe/core/container.hpp"
#include "optpipe/core/extent.hpp"
#include "optpipe/core/index.hpp"
#include "optpipe/pipeline/edges.hpp"
#include "optpipe/pipeline/placement.hpp"

#include <concepts>
#include <cstddef>
#include <utility>
#include <vector>

namespace optpipe {

/// The shape of a pipeline: the numbers of ranks and microbatches, the rank of each stage, and the edges between
/// stages. Each extent is static or `dynamic`. `graph<4, 8>{}` and `graph<dynamic, dynamic>{4, 8}` have the same
/// members.
///
/// Schedules of a graph with static extents store their operations inside the object: 192 bytes for each stage and
/// microbatch. A schedule of `graph<64, 1024>` has 12 MB, more than the usual stack. If an extent is dynamic, the
/// operations are on the heap.
template <auto Ranks, auto Microbatches, class Placement, class Edges = edges::chain> class basic_graph {
    static_assert(check_placement<Placement>() && check_edges<Edges>());

public:
    static constexpr std::size_t rank_extent = Ranks;
    static constexpr std::size_t microbatch_extent = Microbatches;
    static constexpr std::size_t stage_extent = Placement::stage_extent(Ranks);
    static constexpr bool is_always_chain = std::same_as<Edges, edges::chain>;
    static constexpr bool is_static = Ranks != dynamic && Microbatches != dynamic && stage_extent != dynamic;

    constexpr basic_graph() = default;
    constexpr basic_graph(std::size_t ranks, std::size_t microbatches, Placement where = Placement{},
                          Edges feeds = Edges{})
        : ranks_{ranks}, microbatches_{microbatches}, placement_{std::move(where)}, edges_{std::move(feeds)} {
        const bool as_declared = ranks_.size() == ranks && microbatches_.size() == microbatches;
        OPTPIPE_EXPECT(as_declared, "graph: another count than its static extent");
    }
    constexpr explicit basic_graph(Placement where) requires(Ranks != dynamic && Microbatches != dynamic)
        : placement_{std::move(where)} {}

    [[nodiscard]] constexpr std::size_t ranks() const { return ranks_.size(); }
    [[nodiscard]] constexpr std::size_t microbatches() const { return microbatches_.size(); }
    [[nodiscard]] constexpr std::size_t stages() const { return placement_.stages(ranks()); }
    /// Number of pairs of a stage and a microbatch.
    [[nodiscard]] constexpr std::size_t cells() const { return stages() * microbatches(); }
    [[nodiscard]] constexpr rank rank_of(stage s) const { return placement_.rank_of(s, ranks()); }
    [[nodiscard]] constexpr const Placement& placement() const { return placement_; }
    /// Whether every stage feeds the next stage, and no other stage.
    [[nodiscard]] constexpr bool is_chain() const { return edges_.is_chain(); }
    /// Calls `visit(const edge&)` for the edges that lead to the stage.
    template <class Visit> constexpr void for_each_edge_into(stage s, const Visit& visit) const {
        edges_.for_each_into(s, stages(), visit);
    }
    /// Calls `visit(const edge&)` for the edges that leave the stage.
    template <class Visit> constexpr void for_each_edge_out_of(stage s, const Visit& visit) const {
        edges_.for_each_out_of(s, stages(), visit);
    }

    [[nodiscard]] constexpr index_range<rank> all_ranks() const { return index_range<rank>{ranks()}; }
    [[nodiscard]] constexpr index_range<stage> all_stages() const { return index_range<stage>{stages()}; }
    [[nodiscard]] constexpr index_range<microbatch> all_microbatches() const {
        return index_range<microbatch>{microbatches()};
    }

    friend bool operator==(const basic_graph&, const basic_graph&) = default;

private:
    [[no_unique_address]] basic_extent<Ranks> ranks_{};
    [[no_unique_address]] basic_extent<Microbatches> microbatches_{};
    [[no_unique_address]] Placement placement_{};
    [[no_unique_address]] Edges edges_{};
};

template <std::size_t Ranks, std::size_t Microbatches, class Placement = placement::linear, class Edges = edges::chain>
using graph = basic_graph<named_extent<Ranks>(), named_extent<Microbatches>(), Placement, Edges>;

template <class G> inline constexpr bool is_graph = false;
template <auto Ranks, auto Microbatches, class Placement, class Edges>
inline constexpr bool is_graph<basic_graph<Ranks, Microbatches, Placement, Edges>> = true;
template <class G> concept pipeline_graph = is_graph<G>;

/// The graph type for pipelines that are read from a file. All extents are dynamic, and any placement and any edges are
/// possible.
using any_graph = graph<dynamic, dynamic, placement::map<>, edges::any>;

/// The pipeline `g` with all extents dynamic. Contract: every stage is on a rank of the graph.
template <pipeline_graph Graph> [[nodiscard]] constexpr any_graph to_any_graph(const Graph& g) {
    per_stage<rank> ranks(g.stages());
    for (const stage s : g.all_stages()) {
        OPTPIPE_EXPECT(g.rank_of(s).position() < g.ranks(), "graph: a stage is on a rank that there isn't");
        ranks[s] = g.rank_of(s);
    }
    edges::any feeds;
    if (!g.is_chain()) {
        std::vector<edge> all;
        for (const stage s : g.all_stages())
            g.for_each_edge_into(s, [&](const edge& each) { all.push_back(each); });
        feeds = edges::any{g.stages(), std::move(all)};
    }
    return {g.ranks(), g.microbatches(), placement::map<>{std::move(ranks)}, std::move(feeds)};
}

/// The stages of each rank, in model order. Contract: every stage is on a rank of the graph.
template <pipeline_graph Graph> [[nodiscard]] constexpr auto stages_by_rank(const Graph& g) {
    per_rank<bounded_vector<stage, Graph::stage_extent>, Graph::rank_extent> stages(g.ranks());
    for (const stage s : g.all_stages()) {
        OPTPIPE_EXPECT(g.rank_of(s).position() < g.ranks(), "graph: a stage is on a rank that there isn't");
        stages[g.rank_of(s)].push_back(s);
    }
    return stages;
}

/// The position of each stage among the stages of its rank.
template <pipeline_graph Graph> [[nodiscard]] constexpr auto places_on_ranks(const Graph& g) {
    per_stage<std::size_t, Graph::stage_extent> places(g.stages());
    for (const auto& stages : stages_by_rank(g))
        for (std::size_t i = 0; i < stages.size(); ++i)
            places[stages[i]] = i;
    return places;
}

/// Whether each rank holds exactly one stage.
template <pipeline_graph Graph> [[nodiscard]] constexpr bool one_stage_per_rank(const Graph& g) {
    if (g.stages() != g.ranks()) return false;
    for (const auto& stages : stages_by_rank(g))
        if (stages.size() != 1) return false;
    return true;
}

} // namespace optpipe
