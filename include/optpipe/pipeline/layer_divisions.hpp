#pragma once

#include "optpipe/core/contract.hpp"
#include "optpipe/core/index.hpp"
#include "optpipe/core/stop_check.hpp"
#include "optpipe/pipeline/graph.hpp"
#include "optpipe/pipeline/layer_graph.hpp"

#include <algorithm>
#include <cstddef>
#include <span>
#include <utility>
#include <variant>
#include <vector>

namespace optpipe::detail {

/// Number of layers of each stage.
using layer_counts = std::vector<std::size_t>;

/// The ways to divide the layers of a model among the stages of one pipeline: each stage holds consecutive layers, at
/// least one, pinned layers are where they belong, and the layers of each list in `together` are in one stage.
class layer_divisions {
public:
    layer_divisions(std::size_t layers, std::span<const layer_pin> pins,
                    std::span<const std::vector<std::size_t>> together, const any_graph& pipeline);

    /// Whether there is one at all.
    [[nodiscard]] bool exist() const { return may_begin(0, 0); }
    /// The number of divisions, or a number above `most` if there are more.
    [[nodiscard]] std::size_t count(std::size_t most) const;
    /// Contract: as many stages and layers as here, at least one layer in each stage.
    [[nodiscard]] bool allow(const layer_counts& each) const;
    /// A division close to `wanted`: from the first stage on, each ends as close to there as the remaining ones allow.
    /// Contract: there is a division.
    [[nodiscard]] layer_counts close_to(const layer_counts& wanted) const;
    /// The number of pieces that can't be divided: layers, and those that belong together as one.
    [[nodiscard]] std::size_t pieces() const { return pieces_from_.front(); }
    /// Calls `look(first, last)` for every piece, with its first layer and the one behind it.
    template <class Look> void for_each_piece(const Look& look) const {
        for (std::size_t first = 0; first < layers_;) {
            const auto last = next_cut(first);
            look(first, last);
            first = last;
        }
    }

    /// Calls `look(division)` for every division in lexicographic order, until `stop()`.
    template <class Look> void for_each(stop_check stop, const Look& look) const {
        layer_counts each;
        visit(each, 0, stop, look);
    }
    /// Calls `look(neighbour)` for every division that differs by one piece moved to another stage, until `stop()`.
    template <class Look> void for_each_neighbour(layer_counts of, stop_check stop, const Look& look) const {
        for (std::size_t from = 0; from < stages_; ++from)
            for (std::size_t to = 0; to < stages_ && of[from] > 1; ++to) {
                if (from == to) continue;
                if (stop()) return;
                if (pieces() == layers_) {
                    --of[from];
                    ++of[to];
                    if (!has_pins() || allow(of)) look(std::as_const(of));
                    ++of[from];
                    --of[to];
                } else if (const auto moved = moved_piece(of, from, to); allow(moved)) {
                    look(moved);
                }
            }
    }

private:
    [[nodiscard]] bool has_pins() const { return !pins_.empty(); }
    /// Whether pins allow the layer on the stage.
    [[nodiscard]] bool allows(std::size_t layer, std::size_t s) const {
        if (!has_pins()) return true;
        return std::all_of(pins_[layer].begin(), pins_[layer].end(), [&](const auto& where) {
            const auto* const there = std::get_if<stage>(&where);
            return there ? there->position() == s : std::get<rank>(where) == rank_of_[s];
        });
    }
    /// The next layer behind `layer`, or before it, at which a stage may begin; the number of layers is the end.
    [[nodiscard]] std::size_t next_cut(std::size_t layer) const {
        while (!is_cut_[++layer]) {
        }
        return layer;
    }
    [[nodiscard]] std::size_t previous_cut(std::size_t layer) const {
        while (!is_cut_[--layer]) {
        }
        return layer;
    }
    /// Whether the layers from `layer` on can be divided among the stages from `s` on.
    [[nodiscard]] bool may_begin(std::size_t s, std::size_t layer) const {
        if (has_pins()) return may_begin_[s * (layers_ + 1) + layer];
        if (s == stages_) return layer == layers_;
        return is_cut_[layer] && pieces_from_[layer] >= stages_ - s;
    }
    void find_cuts(std::span<const std::vector<std::size_t>> together);
    void find_beginnings();
    [[nodiscard]] static std::size_t binomial(std::size_t n, std::size_t k, std::size_t most);
    [[nodiscard]] std::size_t count_pinned(std::size_t most) const;
    /// The division with the first or last piece of `from` moved towards `to`, and those of the stages in between.
    /// Invalid if `from` has no other piece.
    [[nodiscard]] layer_counts moved_piece(const layer_counts& of, std::size_t from, std::size_t to) const;

    template <class Look> bool visit(layer_counts& each, std::size_t begin, stop_check stop, const Look& look) const {
        const auto s = each.size();
        if (s == stages_) {
            if (stop()) return false;
            look(std::as_const(each));
            return true;
        }
        for (auto end = begin; end < layers_ && allows_piece(end, s);) {
            end = next_cut(end);
            if (!may_begin(s + 1, end)) continue;
            each.push_back(end - begin);
            const bool goes_on = visit(each, end, stop, look);
            each.pop_back();
            if (!goes_on) return false;
        }
        return true;
    }
    /// Whether pins allow the piece that begins at `first` on the stage.
    [[nodiscard]] bool allows_piece(std::size_t first, std::size_t s) const {
        if (!has_pins()) return true;
        for (auto layer = first; layer < next_cut(first); ++layer)
            if (!allows(layer, s)) return false;
        return true;
    }

    std::size_t layers_;
    std::size_t stages_;
    std::vector<rank> rank_of_;
    /// For each layer, and behind the last one, whether a stage may begin there.
    std::vector<bool> is_cut_;
    /// The number of pieces from each layer on.
    std::vector<std::size_t> pieces_from_;
    /// The pins of each layer; empty if there are none at all.
    std::vector<std::vector<std::variant<stage, rank>>> pins_;
    /// [s · (layers + 1) + layer]: see `may_begin`. Only with pins.
    std::vector<bool> may_begin_;
};

inline layer_divisions::layer_divisions(std::size_t layers, std::span<const layer_pin> pins,
                                        std::span<const std::vector<std::size_t>> together, const any_graph& pipeline)
    : layers_{layers}, stages_{pipeline.stages()} {
    for (const stage s : pipeline.all_stages())
        rank_of_.push_back(pipeline.rank_of(s));
    find_cuts(together);
    if (pins.empty()) return;
    pins_.resize(layers_);
    for (const auto& pin : pins)
        pins_[pin.layer].push_back(pin.where);
    find_beginnings();
}

inline void layer_divisions::find_cuts(std::span<const std::vector<std::size_t>> together) {
    is_cut_.assign(layers_ + 1, true);
    for (const auto& list : together) {
        const auto [first, last] = std::minmax_element(list.begin(), list.end());
        for (auto layer = *first; layer < *last; ++layer)
            is_cut_[layer + 1] = false;
    }
    pieces_from_.assign(layers_ + 1, 0);
    for (auto layer = layers_; layer-- > 0;)
        pieces_from_[layer] = pieces_from_[layer + 1] + (is_cut_[layer] ? 1 : 0);
}

inline void layer_divisions::find_beginnings() {
    may_begin_.assign((stages_ + 1) * (layers_ + 1), false);
    may_begin_.back() = true;
    for (auto s = stages_; s-- > 0;) {
        bool may_end = false; // whether stage s can hold layers up to the next beginning of stage s + 1
        for (auto layer = layers_; layer-- > 0;) {
            may_end = allows(layer, s) && (may_end || may_begin(s + 1, layer + 1));
            may_begin_[s * (layers_ + 1) + layer] = may_end && is_cut_[layer];
        }
    }
}

inline std::size_t layer_divisions::count(std::size_t most) const {
    return has_pins() ? count_pinned(most) : exist() ? binomial(pieces() - 1, stages_ - 1, most) : 0;
}

/// n over k, or a number above `most` if it is larger.
inline std::size_t layer_divisions::binomial(std::size_t n, std::size_t k, std::size_t most) {
    std::size_t found = 1;
    for (std::size_t i = 1; i <= std::min(k, n - k) && found <= most; ++i)
        found = found * (n - i + 1) / i;
    return found;
}

inline std::size_t layer_divisions::count_pinned(std::size_t most) const {
    std::vector<std::size_t> ways(layers_ + 1, 0); // of the layers from each on, among the stages from s on
    ways.back() = 1;
    for (auto s = stages_; s-- > 0;)
        for (std::size_t layer = 0; layer <= layers_; ++layer) {
            std::size_t found = 0;
            if (layer < layers_ && may_begin(s, layer))
                for (auto end = layer; end < layers_ && found <= most && allows_piece(end, s);) {
                    end = next_cut(end);
                    found += ways[end];
                }
            ways[layer] = std::min(found, most + 1);
        }
    return ways.front();
}

inline bool layer_divisions::allow(const layer_counts& each) const {
    OPTPIPE_EXPECT(each.size() == stages_, "layer_divisions: another number of stages");
    std::size_t end = 0;
    for (std::size_t s = 0; s < stages_; ++s) {
        const auto begin = end;
        end += each[s];
        if (each[s] == 0 || end > layers_ || !is_cut_[end]) return false;
        for (auto layer = begin; has_pins() && layer < end; ++layer)
            if (!allows(layer, s)) return false;
    }
    return end == layers_;
}

inline layer_counts layer_divisions::close_to(const layer_counts& wanted) const {
    OPTPIPE_EXPECT(exist(), "layer_divisions: there are none");
    layer_counts found;
    std::size_t begin = 0;
    std::size_t wanted_end = 0;
    for (std::size_t s = 0; s < stages_; ++s) {
        wanted_end += wanted[s];
        const auto distance = [&](std::size_t end) { return std::max(end, wanted_end) - std::min(end, wanted_end); };
        auto best = layers_ + 1;
        for (auto end = begin; end < layers_ && allows_piece(end, s);) {
            end = next_cut(end);
            if (may_begin(s + 1, end) && (best > layers_ || distance(end) < distance(best))) best = end;
        }
        found.push_back(best - begin);
        begin = best;
    }
    return found;
}

inline layer_counts layer_divisions::moved_piece(const layer_counts& of, std::size_t from, std::size_t to) const {
    layer_counts moved(of.size());
    std::size_t begin = 0; // of the next stage, before and after
    std::size_t moved_begin = 0;
    for (std::size_t s = 0; s < stages_; ++s) {
        begin += of[s];
        auto end = begin;
        if (from <= s && s < to) end = previous_cut(begin);
        if (to <= s && s < from) end = next_cut(begin);
        moved[s] = end - std::min(end, moved_begin);
        moved_begin = end;
    }
    return moved;
}

} // namespace optpipe::detail
