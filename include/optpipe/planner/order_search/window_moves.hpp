#pragma once

#include "optpipe/core/random.hpp"
#include "optpipe/pipeline/problem.hpp"
#include "optpipe/planner/flat_problem.hpp"
#include "optpipe/planner/order_search/timed_order.hpp"
#include "optpipe/schedule/operation.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace optpipe::detail {

/// Edits that change all operations of a window in the same way. In a steady state, an edit of a single operation or
/// pair usually makes the step longer. A window has several successive microbatches, on one stage, on the k-th stage of
/// every rank, or on all stages.
///
/// The order must have no transfers, because the lanes of transfers aren't merged here.
class window_moves {
public:
    using id = flat_problem::id;

    window_moves(const problem& p, random_numbers& random)
        : p_{&p}, random_{&random}, place_on_rank_{places_on_ranks(p.graph)}, lanes_(p.graph.ranks()),
          next_(p.graph.ranks()), allowed_(p.graph.ranks()), stages_(p.graph.stages()) {}

    /// Edits the order in a window that begins with the microbatch of the operation at position `at`. Returns false,
    /// with nothing changed, if the edit isn't possible.
    bool edit(timed_order& order, std::size_t at) {
        order_ = &order;
        draw_window(at);
        fill_lanes();
        choices_.clear();
        if (!change()) return false;
        if (merge_lanes()) return true;
        order.undo();
        return false;
    }

private:
    using index = std::size_t;
    /// An operation or a pair, as an entry of its rank's lane.
    struct item {
        id first = flat_problem::none;
        id second = flat_problem::none;
        [[nodiscard]] bool is_pair() const { return second != flat_problem::none; }
    };
    static constexpr std::size_t half = 50; // in percent

    static index at(id i) { return static_cast<index>(i); }
    [[nodiscard]] const flat_problem& flat() const { return order_->flat(); }
    [[nodiscard]] const cell_choices& cells() const { return order_->cells(); }
    [[nodiscard]] stage stage_of(id op) const { return stage{flat().stage_of(op)}; }
    [[nodiscard]] index microbatch_of(id op) const { return at(flat().microbatch_of(op)); }

    void draw_window(index place) {
        const id op = (*order_)[place];
        drawn_ = op;
        const auto count = p_->graph.microbatches();
        first_ = microbatch_of(op);
        std::size_t width = 2;
        while (width < count && random_->chance(half))
            width *= 2;
        end_ = std::min(count, first_ + width);
        const auto drawn_stage = stage_of(op);
        const auto kind = random_->below(3);
        for (const stage s : p_->graph.all_stages())
            stages_[s.position()] =
                s == drawn_stage || kind == 2 || (kind == 1 && place_on_rank_[s] == place_on_rank_[drawn_stage]);
    }
    [[nodiscard]] bool is_in_window(id op) const {
        const auto m = microbatch_of(op);
        return m >= first_ && m < end_ && stages_[stage_of(op).position()];
    }
    void fill_lanes() {
        for (auto& lane : lanes_)
            lane.clear();
        for (index i = 0; i < order_->size(); ++i) {
            const id op = (*order_)[i];
            const bool is_pair = order_->last_place(i) != i;
            lanes_[at(cells()[op].rank)].push_back({op, is_pair ? (*order_)[i + 1] : flat_problem::none});
            if (is_pair) ++i;
        }
    }

    bool change() {
        const bool earlier = random_->chance(half);
        bool changed = false;
        switch (random_->below(p_->overlaps.empty() ? 2 : 5)) {
        case 0:
            for (auto& lane : lanes_)
                changed = shift(lane, earlier) || changed;
            return changed;
        case 1:
            for (auto& lane : lanes_)
                changed = split_or_join(lane) || changed;
            return changed;
        case 2:
            for (auto& lane : lanes_)
                changed = split_pairs(lane, earlier) || changed;
            return changed;
        case 3:
            for (const stage s : p_->graph.all_stages())
                if (stages_[s.position()]) changed = slide(lanes_[p_->rank_of(s).position()], s, earlier) || changed;
            return changed;
        default: return merge_all(earlier);
        }
    }
    [[nodiscard]] bool is_of_kind(const item& each) const {
        const auto same = [&](id op) { return flat().slot(op) == flat().slot(drawn_) && is_in_window(op); };
        return same(each.first) || (each.is_pair() && same(each.second));
    }
    /// Moves the operations of the window past their neighbours.
    bool shift(std::vector<item>& lane, bool earlier) {
        bool moved = false;
        for (index k = 1; k < lane.size(); ++k) {
            const index i = earlier ? k : lane.size() - k;
            if (is_of_kind(lane[earlier ? i : i - 1]) && !is_of_kind(lane[earlier ? i - 1 : i])) {
                std::swap(lane[i - 1], lane[i]);
                moved = true;
            }
        }
        return moved;
    }
    /// Splits the pairs of the window into single operations.
    bool split_pairs(std::vector<item>& lane, bool forward_first) {
        scratch_.clear();
        for (const auto& each : lane) {
            if (!each.is_pair() || !is_in_window(each.first)) {
                scratch_.push_back(each);
                continue;
            }
            scratch_.push_back({forward_first ? each.first : each.second});
            scratch_.push_back({forward_first ? each.second : each.first});
        }
        const bool changed = scratch_.size() != lane.size();
        lane.swap(scratch_);
        return changed;
    }
    /// Moves the forward of each pair of stage `s` in the window to the previous pair (`earlier`) or to the next pair.
    /// The number of microbatches in flight changes by one. The forward at one end of the window and the backward at
    /// the opposite end become single.
    bool slide(std::vector<item>& lane, stage s, bool earlier) {
        places_.clear();
        for (index i = 0; i < lane.size(); ++i)
            if (lane[i].is_pair() && stage_of(lane[i].first) == s && is_in_window(lane[i].first)) places_.push_back(i);
        if (places_.size() < 2) return false;
        const item first = lane[places_.front()];
        const item last = lane[places_.back()];
        for (index k = 0; k + 1 < places_.size(); ++k) {
            const auto& one = lane[places_[k]];
            const auto& next = lane[places_[k + 1]];
            if (!(earlier ? may_pair(next.first, one.second) : may_pair(one.first, next.second))) return false;
        }
        for (index k = 0; earlier && k + 1 < places_.size(); ++k)
            lane[places_[k]].first = lane[places_[k + 1]].first;
        for (index k = places_.size(); !earlier && k-- > 1;)
            lane[places_[k]].first = lane[places_[k - 1]].first;
        if (earlier)
            lane[places_.back()] = {last.second};
        else
            lane[places_.front()] = {first.second};
        if (earlier)
            lane.insert(lane.begin() + static_cast<std::ptrdiff_t>(places_.front()), item{first.first});
        else
            lane.insert(lane.begin() + static_cast<std::ptrdiff_t>(places_.back()) + 1, item{last.first});
        return true;
    }
    [[nodiscard]] bool may_pair(id f, id b) const {
        return cells().overlap_of(f, b) && flat().cell_of(f) != flat().cell_of(b);
    }
    /// Makes a pair of the drawn operation and another operation near it. On every rank, makes each similar pair that
    /// has an operation in the window. In similar pairs, stages have the same indices on their ranks, and microbatches
    /// differ by the same number.
    bool merge_all(bool at_earlier) {
        const auto& own = lanes_[at(cells()[drawn_].rank)];
        const bool is_forward = flat().is_forward(drawn_);
        if (!is_forward && !flat().is_gradient(drawn_)) return false;
        const auto place = std::find_if(own.begin(), own.end(), [&](const item& each) { return each.first == drawn_; });
        if (place == own.end() || place->is_pair()) return false;
        constexpr index farthest = 4;
        const auto from = static_cast<index>(place - own.begin());
        const auto low = from > farthest ? from - farthest : 0;
        const auto other = own[random_->between(low, std::min(own.size() - 1, from + farthest))];
        const id f = is_forward ? drawn_ : other.first;
        const id b = is_forward ? other.first : drawn_;
        if (other.is_pair() || !flat().is_forward(f) || !flat().is_gradient(b)) return false;
        lag_ = static_cast<std::ptrdiff_t>(microbatch_of(b)) - static_cast<std::ptrdiff_t>(microbatch_of(f));
        const auto forward_place = place_on_rank_[stage_of(f)];
        const auto backward_place = place_on_rank_[stage_of(b)];
        bool changed = false;
        for (auto& lane : lanes_)
            changed = merge(lane, forward_place, backward_place, at_earlier) || changed;
        return changed;
    }
    bool merge(std::vector<item>& lane, std::size_t forward_place, std::size_t backward_place, bool at_earlier) {
        const auto count = p_->graph.microbatches();
        constexpr index nowhere = static_cast<index>(-1);
        places_.assign(2 * count, nowhere);
        bool is_in = false;
        for (index i = 0; i < lane.size(); ++i) {
            const id op = lane[i].first;
            if (lane[i].is_pair()) continue;
            const auto on_rank = place_on_rank_[stage_of(op)];
            const auto m = microbatch_of(op);
            if (flat().is_forward(op) && on_rank == forward_place) places_[m] = i;
            if (flat().is_gradient(op) && on_rank == backward_place) places_[count + m] = i;
            is_in = is_in || is_in_window(op);
        }
        if (!is_in) return false;
        bool changed = false;
        for (index m = 0; m < count; ++m) {
            const auto other = static_cast<std::ptrdiff_t>(m) + lag_;
            if (places_[m] == nowhere || other < 0 || other >= static_cast<std::ptrdiff_t>(count)) continue;
            const auto one = places_[m];
            const auto two = places_[count + static_cast<index>(other)];
            if (two == nowhere) continue;
            const item pair{lane[one].first, lane[two].first};
            if ((!is_in_window(pair.first) && !is_in_window(pair.second)) || !may_pair(pair.first, pair.second))
                continue;
            const auto keep = at_earlier ? std::min(one, two) : std::max(one, two);
            lane[one] = lane[two] = {};
            lane[keep] = pair;
            changed = true;
        }
        std::erase_if(lane, [](const item& each) { return each.first == flat_problem::none; });
        return changed;
    }
    /// Replaces each B of the window by I and W, or each I and W by a B. A pair stays unchanged if the problem has no
    /// pair with the new backward.
    bool split_or_join(std::vector<item>& lane) {
        if (!p_->split_backward || !p_->full_backward) return false;
        scratch_.clear();
        bool changed = false;
        const bool joins = cells().choice(flat().cell_of(drawn_)).is_split;
        for (const auto& each : lane) {
            const id backward = each.is_pair() ? each.second : each.first;
            const auto cell = flat().cell_of(backward);
            const id gradient = flat().gradient_of(cell);
            const id weight = flat().weight_of(cell);
            const id other = order_->partner(gradient);
            const bool may_change = is_in_window(backward) && (backward == gradient || backward == weight) &&
                                    flat().may_split_or_join(gradient) && cells().choice(cell).is_split == joins &&
                                    (other == flat_problem::none || cells().overlap_of_other_kind(other, gradient));
            if (!may_change || backward != weight || !joins) scratch_.push_back(each);
            if (!may_change || backward != gradient) continue;
            if (!joins) scratch_.push_back({weight});
            auto chosen = cells().choice(cell);
            chosen.is_split = !joins;
            choices_.emplace_back(cell, chosen);
            changed = true;
        }
        lane.swap(scratch_);
        return changed;
    }

    /// Sets the pairs of the lanes, and the storage and backward of changed cells, in an edit of the order.
    void set_pairs_and_choices() {
        for (const auto& [cell, chosen] : choices_)
            order_->choose(cell, chosen);
        for (const auto& lane : lanes_)
            for (const auto& each : lane)
                for (const id op : {each.first, each.second})
                    if (op != flat_problem::none && !each.is_pair() && order_->partner(op) != flat_problem::none)
                        order_->set_partner(op, flat_problem::none);
        for (const auto& lane : lanes_)
            for (const auto& each : lane)
                if (each.is_pair() && order_->partner(each.first) != each.second)
                    order_->set_partner(each.first, each.second);
    }
    /// Merges the lanes into one order, with operations near their old positions. Returns false if operations wait for
    /// each other.
    bool merge_lanes() {
        done_.resize(flat().size());
        ++round_;
        std::fill(next_.begin(), next_.end(), index{0});
        std::fill(allowed_.begin(), allowed_.end(), index{0});
        bool is_complete = false;
        order_->edit_all([&](std::vector<id>& all) {
            set_pairs_and_choices();
            scratch_ids_.swap(all);
            all.clear();
            for (const id op : scratch_ids_) {
                const auto r = at(cells()[op].rank);
                ++allowed_[r];
                while (next_[r] < std::min(allowed_[r], lanes_[r].size()) && advance(r, all)) {
                }
            }
            for (bool moved = true; moved;) {
                moved = false;
                for (index r = 0; r < lanes_.size(); ++r)
                    while (next_[r] < lanes_[r].size() && advance(r, all))
                        moved = true;
            }
            is_complete = true;
            for (index r = 0; r < lanes_.size(); ++r)
                is_complete = is_complete && next_[r] == lanes_[r].size();
        });
        return is_complete;
    }
    bool advance(index r, std::vector<id>& all) {
        const auto& each = lanes_[r][next_[r]];
        if (!is_ready(each.first) || (each.is_pair() && !is_ready(each.second))) return false;
        for (const id op : {each.first, each.second})
            if (op != flat_problem::none) {
                all.push_back(op);
                done_[at(op)] = round_;
            }
        ++next_[r];
        return true;
    }
    [[nodiscard]] bool is_ready(id op) const {
        bool is_ready = true;
        flat().for_each_input(op, cells()[op],
                              [&](id before, double) { is_ready = is_ready && done_[at(before)] == round_; });
        return is_ready;
    }

    const problem* p_;
    random_numbers* random_;
    timed_order* order_ = nullptr;
    per_stage<std::size_t> place_on_rank_;

    // The drawn operation, and the microbatches [first_, end_) of the window. In a new pair, the backward's microbatch
    // is the forward's microbatch plus `lag_`.
    id drawn_ = flat_problem::none;
    std::size_t first_ = 0;
    std::size_t end_ = 0;
    std::ptrdiff_t lag_ = 0;

    // Scratch.
    std::vector<std::vector<item>> lanes_;
    std::vector<index> next_;
    std::vector<index> allowed_;
    std::vector<char> stages_;
    std::vector<item> scratch_{};
    std::vector<index> places_{};
    std::vector<id> scratch_ids_{};
    std::vector<std::pair<index, flat_problem::cell_choice>> choices_{};
    std::vector<std::uint64_t> done_{};
    std::uint64_t round_ = 0;
};

} // namespace optpipe::detail
