#pragma once

#include "optpipe/pipeline/layer_graph.hpp"

#include <algorithm>
#include <cstddef>
#include <optional>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

namespace optpipe::detail {

/// The cuts of a model's layers. A cut is a set of layers that the first stages of a pipeline may hold. If a cut
/// contains a layer, the cut contains all layers that feed this layer. A cut that contains a layer with a backward also
/// contains all layers without a backward. Layers that belong together form one piece with all layers between them. Cut
/// 0 is empty. A cut's index is above the indices of its proper subsets.
class layer_cuts {
public:
    /// The neighbour of a cut with one piece more or less, and this piece.
    struct step {
        std::size_t cut = 0;
        std::size_t piece = 0;
    };
    /// The largest number of cuts to list. For example, two branches of 100 layers have 10,201 cuts. If there are more
    /// cuts, one cut is listed per number of pieces: the first pieces in the order of the layers.
    static constexpr std::size_t most_cuts = 16'384;

    /// The first `without_backward` layers have no backward. Each list in `together` names layers that must be in one
    /// stage.
    layer_cuts(std::size_t layers, const std::optional<std::vector<layer_edge>>& edges,
               std::span<const std::vector<std::size_t>> together, std::size_t without_backward,
               std::size_t most = most_cuts);

    [[nodiscard]] std::size_t layers() const { return piece_of_.size(); }
    [[nodiscard]] std::size_t pieces() const { return layers_of_.size(); }
    /// The layers of a piece, in order.
    [[nodiscard]] const std::vector<std::size_t>& layers_of(std::size_t piece) const { return layers_of_[piece]; }

    /// Number of cuts. The last cut has all layers.
    [[nodiscard]] std::size_t size() const { return members_.size(); }
    /// Whether all cuts are listed.
    [[nodiscard]] bool are_all() const { return are_all_; }
    [[nodiscard]] bool contains(std::size_t cut, std::size_t piece) const { return members_[cut][piece]; }
    [[nodiscard]] std::size_t piece_of(std::size_t layer) const { return piece_of_[layer]; }
    [[nodiscard]] std::size_t pieces_in(std::size_t cut) const { return pieces_in_[cut]; }
    [[nodiscard]] std::size_t layers_in(std::size_t cut) const { return layers_in_[cut]; }
    /// The cuts with one piece more than `cut` (`larger`), or one piece less (`smaller`).
    [[nodiscard]] const std::vector<step>& larger(std::size_t cut) const { return larger_[cut]; }
    [[nodiscard]] const std::vector<step>& smaller(std::size_t cut) const { return smaller_[cut]; }

private:
    using graph = std::vector<std::vector<std::size_t>>;

    void find_pieces(const graph& feeds, std::size_t without_backward);
    void find_sources(const graph& feeds, std::size_t without_backward);
    [[nodiscard]] bool may_add(std::size_t cut, std::size_t piece) const;
    void add_step(std::size_t from, std::size_t to, std::size_t piece);
    /// Lists only the empty cut.
    void list_empty();
    /// Lists all cuts. Returns false if there are more than `most`.
    bool list_all(std::size_t most);
    void list_in_order();

    std::vector<std::size_t> piece_of_;
    graph layers_of_;
    /// The pieces that feed each piece.
    graph sources_;
    /// `frozen_` lists the pieces with a layer that has no backward. `has_backward_[i]` tells whether piece i has a
    /// layer with a backward.
    std::vector<std::size_t> frozen_;
    std::vector<bool> has_backward_;
    bool are_all_ = true;
    std::vector<std::vector<bool>> members_;
    std::vector<std::size_t> pieces_in_;
    std::vector<std::size_t> layers_in_;
    std::vector<std::vector<step>> larger_;
    std::vector<std::vector<step>> smaller_;
};

/// Finds the strongly connected components of a graph with Tarjan's algorithm. Finds components in reverse topological
/// order: a component comes after all components that it leads to.
class component_search {
public:
    explicit component_search(const std::vector<std::vector<std::size_t>>& leads_to)
        : leads_to_{leads_to}, entered_(leads_to.size(), 0), lowest_(leads_to.size(), 0),
          is_open_(leads_to.size(), false) {}

    /// Finds all components that can be reached from `node`, the component of `node` last. Does nothing if `node` has
    /// been visited.
    void visit(std::size_t node) {
        if (entered_[node] > 0) return;
        entered_[node] = lowest_[node] = ++visited_;
        is_open_[node] = true;
        open_.push_back(node);
        for (const auto next : leads_to_[node]) {
            visit(next);
            if (is_open_[next]) lowest_[node] = std::min(lowest_[node], lowest_[next]);
        }
        if (lowest_[node] == entered_[node]) close(node);
    }
    [[nodiscard]] const std::vector<std::vector<std::size_t>>& found() const { return found_; }

private:
    void close(std::size_t root) {
        auto& component = found_.emplace_back();
        do {
            component.push_back(open_.back());
            is_open_[open_.back()] = false;
            open_.pop_back();
        } while (component.back() != root);
    }

    const std::vector<std::vector<std::size_t>>& leads_to_;
    std::size_t visited_ = 0;
    /// `entered_[node]` is the node's number in the order of visits, counted from 1. `lowest_[node]` is the least
    /// number of an open node that can be reached from `node`.
    std::vector<std::size_t> entered_;
    std::vector<std::size_t> lowest_;
    std::vector<bool> is_open_;
    std::vector<std::size_t> open_;
    std::vector<std::vector<std::size_t>> found_;
};

inline layer_cuts::layer_cuts(std::size_t layers, const std::optional<std::vector<layer_edge>>& edges,
                              std::span<const std::vector<std::size_t>> together, std::size_t without_backward,
                              std::size_t most)
    : piece_of_(layers) {
    graph feeds(layers + 1); // an extra node, which separates layers without a backward from the rest
    if (edges)
        for (const auto& each : *edges)
            feeds[each.from].push_back(each.to);
    for (std::size_t layer = 0; !edges && layer + 1 < layers; ++layer)
        feeds[layer].push_back(layer + 1);
    for (const auto& list : together)
        for (std::size_t i = 0; i < list.size(); ++i)
            feeds[list[i]].push_back(list[(i + 1) % list.size()]);
    find_pieces(feeds, without_backward);
    find_sources(feeds, without_backward);
    are_all_ = list_all(most);
    if (!are_all_) list_in_order();
}

inline void layer_cuts::find_pieces(const graph& feeds, std::size_t without_backward) {
    const auto between = layers();
    auto leads_to = feeds;
    for (std::size_t layer = 0; layer < layers(); ++layer)
        if (layer < without_backward)
            leads_to[layer].push_back(between);
        else
            leads_to[between].push_back(layer);
    component_search search{leads_to};
    for (auto layer = layers(); layer-- > 0;) { // backwards, so that pieces keep the order of layers where possible
        if (layer + 1 == without_backward) search.visit(between);
        search.visit(layer);
    }
    for (auto at = search.found().rbegin(); at != search.found().rend(); ++at) {
        auto some = *at;
        std::erase(some, between);
        if (some.empty()) continue;
        std::sort(some.begin(), some.end());
        for (const auto layer : some)
            piece_of_[layer] = pieces();
        layers_of_.push_back(std::move(some));
    }
}

inline void layer_cuts::find_sources(const graph& feeds, std::size_t without_backward) {
    sources_.resize(pieces());
    for (std::size_t layer = 0; layer < layers(); ++layer)
        for (const auto to : feeds[layer])
            if (piece_of_[layer] != piece_of_[to]) sources_[piece_of_[to]].push_back(piece_of_[layer]);
    for (std::size_t piece = 0; piece < pieces(); ++piece) {
        if (layers_of_[piece].front() < without_backward) frozen_.push_back(piece);
        has_backward_.push_back(layers_of_[piece].back() >= without_backward);
    }
}

inline bool layer_cuts::may_add(std::size_t cut, std::size_t piece) const {
    const auto is_there = [&](std::size_t other) { return other == piece || contains(cut, other); };
    return !contains(cut, piece) && std::all_of(sources_[piece].begin(), sources_[piece].end(), is_there) &&
           (!has_backward_[piece] || std::all_of(frozen_.begin(), frozen_.end(), is_there));
}

inline void layer_cuts::add_step(std::size_t from, std::size_t to, std::size_t piece) {
    if (to == pieces_in_.size()) {
        pieces_in_.push_back(pieces_in_[from] + 1);
        layers_in_.push_back(layers_in_[from] + layers_of_[piece].size());
        larger_.emplace_back();
        smaller_.emplace_back();
    }
    larger_[from].push_back({to, piece});
    smaller_[to].push_back({from, piece});
}

inline void layer_cuts::list_empty() {
    members_.assign(1, std::vector<bool>(pieces(), false));
    pieces_in_ = layers_in_ = {0};
    larger_.assign(1, {});
    smaller_.assign(1, {});
}

inline bool layer_cuts::list_all(std::size_t most) {
    list_empty();
    for (std::size_t first = 0; first < size();) { // one round for each number of pieces
        const auto last = size();
        std::unordered_map<std::vector<bool>, std::size_t> found;
        for (auto cut = first; cut < last; ++cut)
            for (std::size_t piece = 0; piece < pieces(); ++piece) {
                if (!may_add(cut, piece)) continue;
                auto more = members_[cut];
                more[piece] = true;
                const auto [at, is_new] = found.try_emplace(more, size());
                if (is_new && size() == most) return false;
                if (is_new) members_.push_back(std::move(more));
                add_step(cut, at->second, piece);
            }
        first = last;
    }
    return true;
}

inline void layer_cuts::list_in_order() {
    list_empty();
    for (std::size_t piece = 0; piece < pieces(); ++piece) {
        members_.push_back(members_.back());
        members_.back()[piece] = true;
        add_step(piece, piece + 1, piece);
    }
}

} // namespace optpipe::detail
