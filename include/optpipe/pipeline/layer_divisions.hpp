#pragma once

#include "optpipe/core/contract.hpp"
#include "optpipe/core/index.hpp"
#include "optpipe/core/stop_check.hpp"
#include "optpipe/pipeline/graph.hpp"
#include "optpipe/pipeline/layer_cuts.hpp"
#include "optpipe/pipeline/layer_graph.hpp"

#include <algorithm>
#include <cstddef>
#include <optional>
#include <set>
#include <span>
#include <utility>
#include <variant>
#include <vector>

namespace optpipe::detail {

/// A division of layers among stages. Entry s is the cut with the layers of stages 0 to s. Stage s holds the layers of
/// cut s that aren't in cut s − 1.
using layer_division = std::vector<std::size_t>;

/// The ways to divide the layers of a model among the stages of one pipeline. Every edge must lead to the same or a
/// later stage. Each stage must hold at least one piece. Pinned layers must be on their stages or ranks.
class layer_divisions {
public:
    /// Contract: `cuts` outlives this object.
    layer_divisions(const layer_cuts& cuts, std::span<const layer_pin> pins, const any_graph& pipeline);

    [[nodiscard]] const layer_cuts& cuts() const { return cuts_; }
    /// Whether there is at least one division.
    [[nodiscard]] bool exist() const { return may_begin(0, 0); }
    /// The number of divisions; a count above `most` may be too low.
    [[nodiscard]] std::size_t count(std::size_t most) const {
        std::size_t found = 0;
        const stop_when enough{[&] { return found > most; }};
        for_each(enough, [&](const layer_division&) { ++found; });
        return found;
    }
    /// Whether `each` is one of the possible divisions. Contract: `each` has one cut per stage.
    [[nodiscard]] bool allow(const layer_division& each) const;
    /// A division in which each stage s has about `counts[s]` layers. The cuts are chosen from the first stage on. The
    /// cut for stage s comes as close as possible to counts[0] + … + counts[s] layers. Contract: `exist()`.
    [[nodiscard]] layer_division close_to(std::span<const std::size_t> counts) const;
    /// The stage of each layer.
    [[nodiscard]] std::vector<stage> stages_of(const layer_division& each) const;

    /// Calls `look(division)` for every division in lexicographic order. Ends early if `stop()` returns true.
    template <class Look> void for_each(stop_check stop, const Look& look) const {
        layer_division each;
        if (exist()) visit(each, stop, look);
    }
    /// Calls `look(neighbour)` for every division that differs from `of` by one moved piece. Ends early if `stop()`
    /// returns true.
    template <class Look> void for_each_neighbour(const layer_division& of, stop_check stop, const Look& look) const {
        for (std::size_t from = 0; from < stages(); ++from)
            for (std::size_t to = 0; to < stages() && size_of(of, from) > 1; ++to) {
                if (from == to) continue;
                if (stop()) return;
                const bool is_forward = from < to;
                for (const auto& first : is_forward ? cuts_.smaller(of[from]) : cuts_.larger(of[from - 1])) {
                    if (!holds(of, from, first.piece)) continue;
                    const auto moved =
                        is_forward ? moved_forward(of, from, to, first.piece) : moved_back(of, from, to, first.piece);
                    if (!has_pins() || allow(moved)) look(moved);
                }
            }
    }

private:
    [[nodiscard]] std::size_t stages() const { return rank_of_.size(); }
    [[nodiscard]] bool has_pins() const { return !pins_.empty(); }
    [[nodiscard]] static std::size_t begin_of(const layer_division& each, std::size_t s) {
        return s == 0 ? 0 : each[s - 1];
    }
    /// The number of pieces on a stage.
    [[nodiscard]] std::size_t size_of(const layer_division& each, std::size_t s) const {
        return cuts_.pieces_in(each[s]) - cuts_.pieces_in(begin_of(each, s));
    }
    [[nodiscard]] bool holds(const layer_division& each, std::size_t s, std::size_t piece) const {
        return cuts_.contains(each[s], piece) && !cuts_.contains(begin_of(each, s), piece);
    }
    /// Whether pins allow the piece on the stage.
    [[nodiscard]] bool allows(std::size_t piece, std::size_t s) const {
        if (!has_pins()) return true;
        return std::all_of(pins_[piece].begin(), pins_[piece].end(), [&](const auto& where) {
            const auto* const there = std::get_if<stage>(&where);
            return there ? there->position() == s : std::get<rank>(where) == rank_of_[s];
        });
    }
    /// Whether all layers outside the cut can be divided among the stages from `s` on.
    [[nodiscard]] bool may_begin(std::size_t s, std::size_t cut) const {
        if (has_pins()) return may_begin_[s * cuts_.size() + cut];
        const auto left = cuts_.pieces() - cuts_.pieces_in(cut);
        return s == stages() ? left == 0 : left >= stages() - s;
    }
    void find_beginnings();
    /// The step in `some` that moves the piece `wanted`. The fallback is the last piece of stage `s` if `is_forward` is
    /// true, and else the first piece.
    [[nodiscard]] const layer_cuts::step& choose(const std::vector<layer_cuts::step>& some, const layer_division& of,
                                                 std::size_t s, std::size_t wanted, bool is_forward) const;
    [[nodiscard]] layer_division moved_forward(layer_division of, std::size_t from, std::size_t to,
                                               std::size_t piece) const;
    [[nodiscard]] layer_division moved_back(layer_division of, std::size_t from, std::size_t to,
                                            std::size_t piece) const;

    /// Calls `look(cut)` for each possible end of stage `s` after the cut `begin`. Stops once `look` returns false.
    /// Returns whether `look` always returned true.
    template <class Look> bool for_each_end(std::size_t begin, std::size_t s, const Look& look) const {
        if (s + 1 == stages()) return look(cuts_.size() - 1);
        std::set<std::size_t> next{begin};
        while (!next.empty()) {
            const auto cut = *next.begin();
            next.erase(next.begin());
            if (cut != begin && may_begin(s + 1, cut) && !look(cut)) return false;
            for (const auto& each : cuts_.larger(cut))
                if (allows(each.piece, s)) next.insert(each.cut);
        }
        return true;
    }
    template <class Look> bool visit(layer_division& each, stop_check stop, const Look& look) const {
        if (each.size() == stages()) {
            if (stop()) return false;
            look(std::as_const(each));
            return true;
        }
        return for_each_end(each.empty() ? 0 : each.back(), each.size(), [&](std::size_t end) {
            each.push_back(end);
            const bool goes_on = visit(each, stop, look);
            each.pop_back();
            return goes_on;
        });
    }

    const layer_cuts& cuts_;
    std::vector<rank> rank_of_;
    /// The pins of each piece; empty if no layer is pinned.
    std::vector<std::vector<std::variant<stage, rank>>> pins_;
    /// `may_begin(s, cut)` has index s · cuts + cut. Empty if no layer is pinned.
    std::vector<bool> may_begin_;
};

inline layer_divisions::layer_divisions(const layer_cuts& cuts, std::span<const layer_pin> pins,
                                        const any_graph& pipeline)
    : cuts_{cuts} {
    for (const stage s : pipeline.all_stages())
        rank_of_.push_back(pipeline.rank_of(s));
    if (pins.empty()) return;
    pins_.resize(cuts.pieces());
    for (const auto& pin : pins)
        pins_[cuts.piece_of(pin.layer)].push_back(pin.where);
    find_beginnings();
}

inline void layer_divisions::find_beginnings() {
    may_begin_.assign((stages() + 1) * cuts_.size(), false);
    may_begin_.back() = true;
    for (auto s = stages(); s-- > 0;)
        for (auto cut = cuts_.size(); cut-- > 0;)
            may_begin_[s * cuts_.size() + cut] =
                std::any_of(cuts_.larger(cut).begin(), cuts_.larger(cut).end(), [&](const layer_cuts::step& next) {
                    return allows(next.piece, s) && (may_begin(s + 1, next.cut) || may_begin(s, next.cut));
                });
}

inline bool layer_divisions::allow(const layer_division& each) const {
    OPTPIPE_EXPECT(each.size() == stages(), "layer_divisions: another number of stages");
    if (each.back() != cuts_.size() - 1) return false;
    for (std::size_t piece = 0; piece < cuts_.pieces(); ++piece) {
        const auto is_behind = [&](std::size_t cut) { return !cuts_.contains(cut, piece); };
        const auto end = std::partition_point(each.begin(), each.end(), is_behind);
        if (!std::none_of(end, each.end(), is_behind)) return false;
        if (!allows(piece, static_cast<std::size_t>(end - each.begin()))) return false;
    }
    for (std::size_t s = 0; s < stages(); ++s)
        if (cuts_.pieces_in(each[s]) <= cuts_.pieces_in(begin_of(each, s))) return false;
    return true;
}

inline layer_division layer_divisions::close_to(std::span<const std::size_t> counts) const {
    OPTPIPE_EXPECT(exist(), "layer_divisions: there are none");
    layer_division found;
    std::size_t wanted = 0;
    for (std::size_t s = 0; s < stages(); ++s) {
        wanted += counts[s];
        const auto distance = [&](std::size_t cut) {
            return std::max(cuts_.layers_in(cut), wanted) - std::min(cuts_.layers_in(cut), wanted);
        };
        std::optional<std::size_t> best;
        for_each_end(found.empty() ? 0 : found.back(), s, [&](std::size_t cut) {
            if (!best || distance(cut) < distance(*best)) best = cut;
            return true;
        });
        found.push_back(*best);
    }
    return found;
}

inline std::vector<stage> layer_divisions::stages_of(const layer_division& each) const {
    std::vector<stage> found;
    for (std::size_t layer = 0; layer < cuts_.layers(); ++layer) {
        const auto piece = cuts_.piece_of(layer);
        const auto end = std::partition_point(each.begin(), each.end(),
                                              [&](std::size_t cut) { return !cuts_.contains(cut, piece); });
        found.emplace_back(static_cast<std::size_t>(end - each.begin()));
    }
    return found;
}

inline const layer_cuts::step& layer_divisions::choose(const std::vector<layer_cuts::step>& some,
                                                       const layer_division& of, std::size_t s, std::size_t wanted,
                                                       bool is_forward) const {
    const layer_cuts::step* chosen = nullptr;
    for (const auto& each : some) {
        if (each.piece == wanted) return each;
        if (holds(of, s, each.piece) && (!chosen || (each.piece > chosen->piece) == is_forward)) chosen = &each;
    }
    return *chosen;
}

inline layer_division layer_divisions::moved_forward(layer_division of, std::size_t from, std::size_t to,
                                                     std::size_t piece) const {
    const auto before = of;
    for (auto s = from; s < to; ++s)
        of[s] = choose(cuts_.smaller(before[s]), before, s, piece, true).cut;
    return of;
}

inline layer_division layer_divisions::moved_back(layer_division of, std::size_t from, std::size_t to,
                                                  std::size_t piece) const {
    const auto before = of;
    for (auto s = from; s > to; --s)
        of[s - 1] = choose(cuts_.larger(before[s - 1]), before, s, piece, false).cut;
    return of;
}

} // namespace optpipe::detail
