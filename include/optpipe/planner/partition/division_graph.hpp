#pragma once

#include "optpipe/core/quantity.hpp"
#include "optpipe/planner/partition/rank_load.hpp"

#include <algorithm>
#include <compare>
#include <cstddef>
#include <map>
#include <vector>

namespace optpipe::detail {

/// Numbers of pieces. The first stages of the ranks considered until now end at `first`. The second stages of the ranks
/// end at `second` (in a loop), or begin at `second` (in a v).
struct ends {
    std::size_t first = 0;
    std::size_t second = 0;

    friend auto operator<=>(const ends&, const ends&) = default;
};

/// Lower bounds on the longest operations of the ranks before and after a rank.
struct paces_of_others {
    paces_of_stages earlier{};
    paces_of_stages later{};
};

/// Divisions as the paths of a graph. A node is a pair of ends. An edge has the stages of one rank: it leads from the
/// ends of the rank before to the ends of this rank.
class division_graph {
public:
    struct edge {
        /// Indices of nodes.
        std::size_t from = 0;
        std::size_t to = 0;
        paces_of_stages own{};
        /// Whether the most precise test has passed.
        bool is_tested = false;
    };

    explicit division_graph(const ends& begin) : nodes_{{{begin}}} {}

    [[nodiscard]] std::size_t ranks() const { return edges_.size(); }
    [[nodiscard]] bool empty() const { return edges_.back().empty(); }
    /// The number of nodes after the first `ranks` ranks, and one of them.
    [[nodiscard]] std::size_t nodes(std::size_t ranks) const { return nodes_[ranks].size(); }
    [[nodiscard]] const ends& at(std::size_t ranks, std::size_t index) const { return nodes_[ranks][index].at; }
    [[nodiscard]] std::vector<edge>& edges(std::size_t rank) { return edges_[rank]; }
    void add_rank() {
        nodes_.emplace_back();
        edges_.emplace_back();
        newest_.clear();
    }
    /// Adds an edge to the newest rank.
    void add(std::size_t from, const ends& to, const paces_of_stages& own) {
        const auto [found, is_new] = newest_.try_emplace(to, nodes_.back().size());
        if (is_new) nodes_.back().push_back({to});
        edges_.back().push_back({from, found->second, own});
    }

    /// Removes the edges that are on no path, and computes the paces again.
    void update() {
        for (auto& layer : nodes_)
            for (auto& each : layer)
                each.earlier = each.later = unreached;
        nodes_.front().front().earlier = {};
        for (std::size_t r = 0; r < ranks(); ++r) {
            std::erase_if(edges_[r], [&](const edge& e) { return !is_reached(nodes_[r][e.from].earlier); });
            for (const auto& e : edges_[r])
                lower(nodes_[r + 1][e.to].earlier, max(nodes_[r][e.from].earlier, e.own));
        }
        for (auto& each : nodes_.back())
            each.later = {};
        for (auto r = ranks(); r-- > 0;) {
            std::erase_if(edges_[r], [&](const edge& e) { return !is_reached(nodes_[r + 1][e.to].later); });
            for (const auto& e : edges_[r])
                lower(nodes_[r][e.from].later, max(nodes_[r + 1][e.to].later, e.own));
        }
    }
    /// Contract: `update` was called after the last edge was removed.
    [[nodiscard]] paces_of_others around(std::size_t rank, const edge& e) const {
        return {nodes_[rank][e.from].earlier, nodes_[rank + 1][e.to].later};
    }
    /// A path, as one index of an edge per rank. Prefers tested edges. Contract: as for `around`; the graph isn't
    /// empty.
    [[nodiscard]] std::vector<std::size_t> path() const {
        std::vector<std::size_t> found;
        std::size_t at = 0;
        for (const auto& of_rank : edges_) {
            auto best = of_rank.size();
            for (std::size_t i = 0; i < of_rank.size(); ++i)
                if (of_rank[i].from == at && (best == of_rank.size() || of_rank[i].is_tested > of_rank[best].is_tested))
                    best = i;
            found.push_back(best);
            at = of_rank[best].to;
        }
        return found;
    }
    /// The ends of the first r ranks of a path, for all r.
    [[nodiscard]] std::vector<ends> ends_of(const std::vector<std::size_t>& path) const {
        std::vector<ends> found{nodes_.front().front().at};
        for (std::size_t r = 0; r < ranks(); ++r)
            found.push_back(nodes_[r + 1][edges_[r][path[r]].to].at);
        return found;
    }

private:
    struct node {
        ends at{};
        /// For each kind of operation, the longest one on a path to the node or from the node takes at least this time.
        /// Unlimited if there is no path.
        paces_of_stages earlier{};
        paces_of_stages later{};
    };
    static constexpr pace no_path{duration::unlimited(), duration::unlimited()};
    static constexpr paces_of_stages unreached{{no_path, no_path}};

    [[nodiscard]] static bool is_reached(const paces_of_stages& each) { return !each[0].forward.is_unlimited(); }
    static void lower(paces_of_stages& a, const paces_of_stages& b) {
        for (std::size_t s = 0; s < a.size(); ++s)
            a[s] = {std::min(a[s].forward, b[s].forward), std::min(a[s].gradient, b[s].gradient)};
    }

    /// Indexed by the number of ranks that have stages.
    std::vector<std::vector<node>> nodes_;
    /// Indexed by rank.
    std::vector<std::vector<edge>> edges_{};
    /// The indices of the nodes after the newest rank.
    std::map<ends, std::size_t> newest_{};
};

} // namespace optpipe::detail
