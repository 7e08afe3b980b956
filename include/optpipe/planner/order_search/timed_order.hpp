#pragma once

#include "optpipe/pipeline/problem.hpp"
#include "optpipe/planner/flat_problem.hpp"
#include "optpipe/schedule/dispatch/rank_resources.hpp"
#include "optpipe/schedule/operation.hpp"
#include "optpipe/schedule/schedule.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

namespace optpipe::detail {

/// A complete order with its earliest times, by the rules of `simulate`. An edit changes the order. After an edit,
/// `retime` computes the times of the order, and `keep` or `undo` ends the edit. No memory is allocated once the
/// vectors have grown.
///
/// The parts of a pair are neighbours in the order, the forward first, and move together.
class timed_order {
public:
    using id = flat_problem::id;
    using index = std::size_t;
    static constexpr double never = std::numeric_limits<double>::infinity();

    /// `weight_of_mean` is the weight with which the mean end of the ranks is added to the objective.
    timed_order(const problem& p, double weight_of_mean)
        : flat_{p}, cells_{flat_}, weight_{weight_of_mean}, is_span_{p.objective == objective_kind::span},
          groups_{!p.groups.empty()}, ranks_{p.graph.ranks()}, times_(flat_.size()), kept_(flat_.size()),
          tail_(flat_.size()), mark_(flat_.size()), lane_mark_(flat_.lanes()), free_(flat_.lanes()),
          lane_tail_(flat_.lanes()), level_(ranks_), first_start_(ranks_), resources_{p, {}} {
        if (p.overlaps.empty()) return;
        partner_.assign(flat_.size(), flat_problem::none);
        pair_mark_.resize(p.overlaps.size());
        distinct_.resize(ranks_);
    }

    timed_order(const timed_order&) = delete;
    timed_order& operator=(const timed_order&) = delete;

    [[nodiscard]] const flat_problem& flat() const { return flat_; }
    [[nodiscard]] const cell_choices& cells() const { return cells_; }
    [[nodiscard]] index size() const { return sequence_.size(); }
    [[nodiscard]] id operator[](index i) const { return sequence_[i]; }
    /// The value of the order that was kept last. The value is the sum of the objective and the weighted mean.
    [[nodiscard]] double value() const { return value_; }
    [[nodiscard]] double objective() const { return objective_; }
    /// Whether a later start of the operation at this position would lengthen the step.
    [[nodiscard]] bool is_critical(index i) const {
        constexpr double rounding = 1e-9;
        return kept_[at(sequence_[i])].end + tail_[at(sequence_[i])] >= (1.0 - rounding) * makespan_;
    }

    /// Replaces the order by the schedule's order. Returns false if the order isn't executable.
    bool take(const schedule& s) {
        begin_edit_of_all();
        saved_.clear(); // everything is timed anew
        sequence_.clear();
        std::fill(partner_.begin(), partner_.end(), flat_problem::none);
        first_parts_.assign(ranks_, flat_problem::none);
        const auto given = order_of(s);
        for (const auto& op : given.operations) {
            if (op.kind == operation_kind::forward || is_gradient(op.kind)) {
                auto chosen = cells_.choice(flat_.cell_of(op.stage, op.microbatch));
                chosen.storage = op.storage;
                if (is_gradient(op.kind)) chosen.is_split = op.kind == operation_kind::backward_input;
                cells_.choose(flat_.cell_of(op.stage, op.microbatch), chosen);
            }
            take(op);
        }
        if (retime(never) == never) return false;
        keep();
        return true;
    }
    [[nodiscard]] order to_order() const {
        order all{flat_.of().graph, {}};
        all.operations.reserve(sequence_.size());
        for (const id i : sequence_) {
            all.operations.push_back(cells_.operation_of(i));
            all.operations.back().is_paired = partner(i) != flat_problem::none;
        }
        return all;
    }

    /// The other part of the operation's pair, or none.
    [[nodiscard]] id partner(id i) const { return partner_.empty() ? flat_problem::none : partner_[at(i)]; }
    /// The position of the first, or last, part of the pair at this position. If there is no pair, the position itself.
    [[nodiscard]] index first_place(index i) const { return is_second(sequence_[i]) ? i - 1 : i; }
    [[nodiscard]] index last_place(index i) const { return is_first(sequence_[i]) ? i + 1 : i; }
    /// Makes a pair of operations `i` and `other`. If `other` is `none`, makes `i` a single operation. Call
    /// `set_partner` only within an edit. At the end of the edit, the parts of every pair must be neighbours.
    void set_partner(id i, id other) {
        edited_partners_.push_back({i, partner_[at(i)]});
        partner_[at(i)] = other;
        if (other == flat_problem::none) return;
        edited_partners_.push_back({other, partner_[at(other)]});
        partner_[at(other)] = i;
    }
    /// Makes a pair of two operations of one lane, at the later position if `at_later`, otherwise at the earlier.
    /// Returns false, without changes, if one operation waits for the other. Contract: at the end of the edit, the
    /// problem has a pair of these two operations.
    bool merge(index earlier, index later, bool at_later) {
        const id one = sequence_[earlier];
        const id other = sequence_[later];
        if (!(at_later ? move_behind(earlier, later) : move_before(later, earlier))) return false;
        const auto place = std::find(sequence_.begin() + static_cast<std::ptrdiff_t>(earlier), sequence_.end(),
                                     at_later ? other : one);
        // The two operations are neighbours now.
        auto first = at_later ? place : place - 1;
        if (!flat_.is_forward(*first)) std::swap(*first, *(first + 1));
        const id f = *first;
        const id b = *(first + 1);
        set_partner(f, b);
        const auto* of = cells_.overlap_of(f, b);
        const double saved = of ? cells_[f].duration + cells_[b].duration - cells_.pair_duration(*of, f, b) : 0.0;
        saved_mean_ = weight_ * std::max(0.0, saved) / static_cast<double>(ranks_);
        return true;
    }
    /// Splits a pair into two single operations. The forward comes first if `forward_first`, otherwise the backward.
    /// Contract: a pair begins at position `first`.
    void split(index first, bool forward_first) {
        first_ = first;
        last_ = first + 1;
        edited_size_ = sequence_.size();
        is_whole_ = false;
        saved_mean_ = 0.0;
        saved_.assign({sequence_[first], sequence_[first + 1]});
        for (const id each : saved_)
            set_partner(each, flat_problem::none);
        if (!forward_first) std::swap(sequence_[first], sequence_[first + 1]);
    }

    /// Moves the operation at `from` to a place before the operation at `to`. Operations in between move along if the
    /// moved operation waits for them. Contract: `to` is before `from`. Returns false, without changes, if the moved
    /// operation waits for the operation at `to`.
    bool move_before(index from, index to) {
        from = last_place(from);
        to = first_place(to);
        begin_marks();
        const auto& own = cells_[sequence_[from]];
        mark_pair(sequence_[from]);
        for (index i = from + 1; i-- > to;) {
            const id op = sequence_[i];
            const auto& f = cells_[op];
            if (mark_[at(op)] != round_ && !is_lane_marked(f, own)) continue;
            mark_pair(op);
            mark_lanes(f);
            mark_inputs(op);
            if (is_first(op)) mark_inputs(partner(op)); // the loop may have missed the partner's inputs
        }
        if (mark_[at(sequence_[to])] == round_) return false;
        partition(to, from, true);
        return true;
    }
    /// Moves the operation at `from` to a place behind the operation at `to`. Operations in between move along if they
    /// wait for the moved operation. Contract: `to` is behind `from`. Returns false, without changes, if the operation
    /// at `to` waits for the moved operation.
    bool move_behind(index from, index to) {
        from = first_place(from);
        to = last_place(to);
        begin_marks();
        const auto& own = cells_[sequence_[from]];
        mark_pair(sequence_[from]);
        for (index i = from; i <= to; ++i) {
            const id op = sequence_[i];
            const auto& f = cells_[op];
            const bool waits = waits_for_marked(op) || (is_first(op) && waits_for_marked(partner(op)));
            if (mark_[at(op)] != round_ && !is_lane_marked(f, own) && !waits) continue;
            mark_pair(op);
            mark_lanes(f);
        }
        if (mark_[at(sequence_[to])] == round_) return false;
        partition(from, to, false);
        return true;
    }
    /// Begins an edit that may change the complete order. `edit` is called with the sequence of operations.
    template <class Edit> void edit_all(const Edit& edit) {
        begin_edit_of_all();
        edit(sequence_);
    }
    /// Continues the current edit with a change that may affect the complete order.
    template <class Edit> void edit_further(const Edit& edit) {
        scratch_ = sequence_;
        std::copy(saved_.begin(), saved_.end(), scratch_.begin() + static_cast<std::ptrdiff_t>(first_));
        saved_.swap(scratch_);
        begin_all();
        edit(sequence_);
    }
    /// Changes the storage and the backward of a cell, within `edit_all` or `edit_further`.
    void choose(index cell, flat_problem::cell_choice chosen) {
        edited_cells_.push_back({cell, cells_.choice(cell)});
        cells_.choose(cell, chosen);
    }

    /// Whether no rank of the edited order has more than `limit` distinct pairs (`most_distinct_pairs`).
    [[nodiscard]] bool has_few_pairs(std::size_t limit) {
        if (limit == std::numeric_limits<std::size_t>::max() || (edited_partners_.empty() && edited_cells_.empty()))
            return true;
        std::fill(distinct_.begin(), distinct_.end(), std::size_t{0});
        ++round_;
        for (const id i : sequence_) {
            if (!is_first(i)) continue;
            const auto* of = cells_.overlap_of(i, partner(i));
            auto& mark = pair_mark_[flat_.of().overlaps.position(*of)];
            if (std::exchange(mark, round_) != round_ && ++distinct_[at(cells_[i].rank)] > limit) return false;
        }
        return true;
    }
    /// Computes the times of the edited order. Returns the value of the edited order (see `value`). Returns infinity if
    /// the value is above `most` or the order isn't executable.
    double retime(double most) {
        if (groups_ && !keeps_order_of_groups()) return never;
        find_changes();
        const bool is_done = flat_.memory_delays() ? retime_with_memory(most) : retime_lanes(most);
        if (!is_done) return never;
        edited_value_ = measure();
        return edited_value_ <= most ? edited_value_ : never;
    }
    /// Ends the edit and keeps it. The operations are put in the order of their starts.
    void keep() {
        value_ = edited_value_;
        objective_ = edited_objective_;
        for (index i = retimed_from_; i < sequence_.size(); ++i)
            kept_[at(sequence_[i])] = times_[at(sequence_[i])];
        sort_by_start(retimed_from_);
        find_tails();
        end_edit();
    }
    void undo() {
        sequence_.resize(edited_size_);
        std::copy(saved_.begin(), saved_.end(), sequence_.begin() + static_cast<std::ptrdiff_t>(first_));
        for (auto i = edited_cells_.size(); i-- > 0;)
            cells_.choose(edited_cells_[i].first, edited_cells_[i].second);
        for (auto i = edited_partners_.size(); i-- > 0;)
            partner_[at(edited_partners_[i].first)] = edited_partners_[i].second;
        // In an edit of the complete order, all operations from `retimed_from_` on have lost their times.
        const auto end = is_whole_ ? sequence_.size() : std::max(last_ + 1, retimed_to_);
        for (index i = retimed_from_; i < end; ++i)
            times_[at(sequence_[i])] = kept_[at(sequence_[i])];
        end_edit();
    }

private:
    struct placement_in_time {
        double start = 0.0;
        double end = 0.0;
        /// The memory of the rank after the operation, if nothing waits for memory.
        double level = 0.0;
    };

    static index at(id i) { return static_cast<index>(i); }

    /// Forgets the edit. Also forgets which positions were timed: the next edit may be undone before its times are
    /// computed.
    void end_edit() {
        edited_cells_.clear();
        edited_partners_.clear();
        retimed_from_ = std::numeric_limits<index>::max();
        retimed_to_ = 0;
    }

    /// Appends an operation to the order. The first part of a pair is appended later, with the second part.
    void take(const operation& op) {
        const id i = flat_.number(op);
        auto& first = first_parts_[at(cells_[i].rank)];
        if (op.is_paired && op.kind == operation_kind::forward) {
            first = i;
            return;
        }
        if (op.is_paired) {
            sequence_.push_back(first);
            partner_[at(first)] = i;
            partner_[at(i)] = first;
        }
        sequence_.push_back(i);
    }
    [[nodiscard]] bool is_first(id i) const { return partner(i) != flat_problem::none && flat_.is_forward(i); }
    [[nodiscard]] bool is_second(id i) const { return partner(i) != flat_problem::none && !flat_.is_forward(i); }

    void begin_marks() { ++round_; }
    /// Marks an operation and its partner, if any.
    void mark_pair(id i) {
        mark_[at(i)] = round_;
        if (const id other = partner(i); other != flat_problem::none) mark_[at(other)] = round_;
    }
    void mark_inputs(id i) {
        flat_.for_each_input(i, cells_[i], [&](id before, double) { mark_[at(before)] = round_; });
    }
    void mark_lanes(const flat_problem::facts& f) { lane_mark_[f.lane] = lane_mark_[f.shared_lane] = round_; }
    /// Whether the operation with the facts `f` shares a lane with a marked operation. The lanes of the
    /// operation that moves don't count.
    bool is_lane_marked(const flat_problem::facts& f, const flat_problem::facts& moves) const {
        const auto is_marked = [&](std::uint32_t lane) {
            return lane_mark_[lane] == round_ && lane != moves.lane && lane != moves.shared_lane;
        };
        return is_marked(f.lane) || is_marked(f.shared_lane);
    }
    bool waits_for_marked(id i) const {
        bool waits = false;
        flat_.for_each_input(i, cells_[i], [&](id before, double) { waits = waits || mark_[at(before)] == round_; });
        return waits;
    }
    /// Moves the marked operations of a section before, or behind, the unmarked operations. The order among marked
    /// operations doesn't change, nor the order among unmarked operations.
    void partition(index first, index last, bool marked_first) {
        first_ = first;
        last_ = last;
        edited_size_ = sequence_.size();
        const auto section = sequence_.begin() + static_cast<std::ptrdiff_t>(first);
        saved_.assign(section, section + static_cast<std::ptrdiff_t>(last - first + 1));
        auto to = section;
        for (const bool marked : {marked_first, !marked_first})
            for (const id i : saved_)
                if ((mark_[at(i)] == round_) == marked) *to++ = i;
        is_whole_ = false;
        saved_mean_ = 0.0;
    }
    void begin_edit_of_all() {
        edited_size_ = sequence_.size();
        saved_.assign(sequence_.begin(), sequence_.end());
        begin_all();
    }
    void begin_all() {
        first_ = 0;
        is_whole_ = true;
        saved_mean_ = 0.0;
    }

    /// Whether the stages of each group run their forwards in one order.
    bool keeps_order_of_groups() {
        const auto& p = flat_.of();
        forwards_.resize(p.graph.stages());
        for (auto& each : forwards_)
            each.clear();
        for (const id i : sequence_) {
            const auto op = cells_.operation_of(i);
            if (op.kind == operation_kind::forward && p.groups.has(op.stage))
                forwards_[op.stage.position()].push_back(op.microbatch);
        }
        bool same = true;
        for (const stage s : p.graph.all_stages())
            p.groups.for_each_member(s, [&](stage member, duration) {
                same = same && forwards_[member.position()] == forwards_[s.position()];
            });
        return same;
    }

    double ready(id i) const {
        return flat_.ready(i, cells_[i], [this](id before) { return times_[at(before)].end; });
    }
    /// Finds the positions that the edit has changed. An edit of the complete order may keep its beginning and its end.
    /// An operation has changed if its place, its choice or its pair is another.
    void find_changes() {
        changed_first_ = first_;
        changed_last_ = last_;
        if (!is_whole_) return;
        ++round_;
        for (const auto& [cell, before] : edited_cells_)
            for (const auto kind : slot_kinds)
                mark_[at(flat_.number_in(cell, kind))] = round_;
        for (const auto& [i, before] : edited_partners_)
            mark_[at(i)] = round_;
        const auto is_same = [&](index now, index before) {
            return sequence_[now] == saved_[before] && mark_[at(sequence_[now])] != round_;
        };
        const auto both = std::min(sequence_.size(), saved_.size());
        index first = 0;
        while (first < both && is_same(first, first))
            ++first;
        index same = 0; // operations at the end
        while (first + same < both && is_same(sequence_.size() - 1 - same, saved_.size() - 1 - same))
            ++same;
        changed_first_ = first;
        changed_last_ = sequence_.size() - same;
    }
    /// Whether the step certainly exceeds `most`. `op` is behind the changed positions. The time from `op`'s end to the
    /// end of the step is no shorter than before.
    bool is_too_late(index i, id op, double most) const {
        return i > changed_last_ && !is_span_ && mean_of_edited() + times_[at(op)].end + tail_[at(op)] > most;
    }
    /// The least weighted mean end of the ranks after the edit. An edit of the complete order may have other choices
    /// and pairs, and thus less work.
    [[nodiscard]] double mean_of_edited() const {
        const bool may_have_less = is_whole_ && !(edited_cells_.empty() && edited_partners_.empty());
        return may_have_less ? 0.0 : least_mean_ - saved_mean_;
    }
    /// An operation, or a pair.
    struct entry {
        id op = flat_problem::none;
        id other = flat_problem::none;
        const overlap* of = nullptr;
    };
    [[nodiscard]] entry entry_at(index i) const {
        const id op = sequence_[i];
        if (!is_first(op)) return {op};
        return {op, partner(op), cells_.overlap_of(op, partner(op))};
    }
    /// Computes times from position `from` on. `place(entry, ready)` sets the times of an entry with inputs ready at
    /// `ready`. `place` returns false if there is no memory for the entry.
    template <class Place> bool retime_from(index from, double most, const Place& place) {
        begin_times(from);
        for (index i = from; i < sequence_.size(); ++i) {
            const auto e = entry_at(i);
            if (e.of) ++i;
            retimed_to_ = i + 1;
            const double begin = e.of ? std::max(ready(e.op), ready(e.other)) : ready(e.op);
            if (begin == never) return false; // an input comes later in the order
            if (!place(e, begin) || is_too_late(i, e.op, most) || (e.of && is_too_late(i, e.other, most))) return false;
        }
        return true;
    }
    bool retime_lanes(double most) {
        return retime_from(is_span_ ? 0 : changed_first_, most,
                           [this](const entry& e, double ready) { return place_on_lane(e, ready); });
    }
    /// Computes all times: an operation may wait for memory that any other operation frees.
    bool retime_with_memory(double most) {
        resources_.clear();
        return retime_from(0, most, [this](const entry& e, double ready) { return place_in_memory(e, ready); });
    }
    bool place_on_lane(const entry& e, double ready) {
        const auto& f = cells_[e.op];
        double acquired = f.acquired;
        double released = f.released_in_all;
        if (e.of) {
            acquired += cells_[e.other].acquired;
            released += cells_[e.other].released_in_all;
        }
        double& level = level_[at(f.rank)];
        level += acquired;
        if ((e.of ? level + e.of->memory.value() : level) > flat_.limit(f.rank)) return false;
        level -= released;
        set_times(e, f, std::max(free_[f.lane], ready));
        times_[at(e.op)].level = level;
        free_[f.lane] = times_[at(e.op)].end;
        if (!e.of) return true;
        times_[at(e.other)].level = level;
        return true;
    }
    bool place_in_memory(const entry& e, double ready) {
        const auto& f = cells_[e.op];
        auto effect = effect_of(f);
        if (e.of) {
            const auto of_other = effect_of(cells_[e.other]);
            effect.acquired_at_start += of_other.acquired_at_start + e.of->memory;
            effect.released_at_end += of_other.released_at_end + e.of->memory;
        }
        const occupied_lanes lanes{f.lane, f.shared_lane};
        const rank r{f.rank};
        const auto [start, lacks] = resources_.earliest_start(lanes, r, effect, duration{ready});
        if (lacks) return false;
        set_times(e, f, start.value());
        const duration end{times_[at(e.op)].end};
        resources_.occupy(lanes, r, effect, start, end);
        if (f.lane < ranks_) free_[f.lane] = end.value();
        release_others(e.op);
        if (e.of) release_others(e.other);
        return true;
    }
    static memory_effect effect_of(const flat_problem::facts& f) {
        return {memory_size{f.acquired}, memory_size{f.released}, memory_size{f.host_acquired},
                memory_size{f.host_released}};
    }
    void release_others(id op) {
        if (!cells_[op].frees_others) return;
        for_each_release_of_others(flat_.of(), cells_.operation_of(op), [&](rank of, memory_size amount) {
            resources_.release(of, amount, duration{times_[at(op)].end});
        });
    }
    void set_times(const entry& e, const flat_problem::facts& f, double begin) {
        auto& times = times_[at(e.op)];
        times.start = begin;
        times.end = begin + (e.of ? cells_.pair_duration(*e.of, e.op, e.other) : f.duration);
        if (f.lane < ranks_) first_start_[f.lane] = std::min(first_start_[f.lane], begin);
        if (!e.of) return;
        times_[at(e.other)].start = times.start;
        times_[at(e.other)].end = times.end;
    }
    /// Restores the state of lanes and memories before position `from`.
    void begin_times(index from) {
        retimed_from_ = from;
        std::fill(free_.begin(), free_.end(), 0.0);
        std::fill(level_.begin(), level_.end(), 0.0);
        std::fill(first_start_.begin(), first_start_.end(), never);
        // Operations that haven't been placed yet are never ready.
        if (is_whole_)
            for (index i = from; i < sequence_.size(); ++i)
                times_[at(sequence_[i])].end = never;
        ++round_;
        index left = ranks_;
        for (index i = from; i-- > 0 && left > 0;) {
            const auto& f = cells_[sequence_[i]];
            if (lane_mark_[f.lane] == round_) continue;
            lane_mark_[f.lane] = round_;
            --left;
            free_[f.lane] = times_[at(sequence_[i])].end;
            level_[at(f.rank)] = times_[at(sequence_[i])].level;
        }
    }
    double measure() {
        double longest = 0.0;
        double sum = 0.0;
        for (index r = 0; r < ranks_; ++r) {
            const double first = is_span_ && first_start_[r] < never ? first_start_[r] : 0.0;
            longest = std::max(longest, free_[r] - first);
            sum += free_[r];
        }
        edited_objective_ = longest;
        return longest + weight_ * sum / static_cast<double>(ranks_);
    }

    /// Insertion sort is stable, and fast because hardly any operation moves. Operations before position `from` are
    /// sorted.
    void sort_by_start(index from) {
        for (index i = std::max<index>(1, from); i < sequence_.size(); ++i) {
            const id op = sequence_[i];
            const double start = times_[at(op)].start;
            index to = i;
            for (; to > 0 && times_[at(sequence_[to - 1])].start > start; --to)
                sequence_[to] = sequence_[to - 1];
            sequence_[to] = op;
        }
    }
    /// Computes the longest time from the end of each operation to the end of the step, over inputs and lanes.
    void find_tails() {
        std::fill(lane_tail_.begin(), lane_tail_.end(), 0.0);
        for (const id i : sequence_)
            tail_[at(i)] = 0.0;
        makespan_ = 0.0;
        double busy = 0.0;
        const auto raise = [](double& to, double by) { to = std::max(to, by); };
        for (index i = sequence_.size(); i-- > 0;) {
            const id op = sequence_[i];
            const auto& f = cells_[op];
            double& tail = tail_[at(op)];
            raise(tail, std::max(lane_tail_[f.lane], lane_tail_[f.shared_lane]));
            const id other = partner(op);
            const double length = other == flat_problem::none ? f.duration : times_[at(op)].end - times_[at(op)].start;
            if (is_second(op)) raise(tail_[at(other)], tail); // the first part, later in this loop, uses the tail
            if (is_second(op)) continue;
            if (other != flat_problem::none) tail_[at(other)] = tail;
            const double with_own = tail + length;
            lane_tail_[f.lane] = lane_tail_[f.shared_lane] = with_own;
            raise_inputs(op, with_own);
            if (other != flat_problem::none) raise_inputs(other, with_own);
            raise(makespan_, times_[at(op)].end);
            if (f.lane < ranks_) busy += length;
        }
        least_mean_ = weight_ * busy / static_cast<double>(ranks_);
    }

    /// Raises the tail of each input to at least `tail` plus the delay from the input to the operation.
    void raise_inputs(id i, double tail) {
        flat_.for_each_input(i, cells_[i], [&](id before, double delay) {
            tail_[at(before)] = std::max(tail_[at(before)], tail + delay);
        });
    }

    flat_problem flat_;
    cell_choices cells_;
    double weight_;
    bool is_span_;
    bool groups_;
    index ranks_;
    std::vector<id> sequence_{};
    /// The other part of each operation's pair. Empty if the problem has no pairs.
    std::vector<id> partner_{};
    // Indexed by operation. `times_` has the times in the edited order. `kept_` has the times in the order that was
    // kept last. `tail_` has the time from the operation's end to the end of the step, in the last kept order.
    std::vector<placement_in_time> times_;
    std::vector<placement_in_time> kept_;
    std::vector<double> tail_;
    /// The weighted mean end of the ranks if no rank were ever idle.
    double least_mean_ = 0.0;
    /// Reduction of `least_mean_` by the pair that the edit makes.
    double saved_mean_ = 0.0;
    double value_ = never;
    double objective_ = never;
    double makespan_ = 0.0;

    // Describes the edit. `first_` and `last_` are the first and the last position of the edit. Positions outside of
    // `changed_first_` to `changed_last_` have the same operations as before (`find_changes`). The vectors have the
    // operations, the choices of cells and the pairs before the edit.
    index first_ = 0;
    index last_ = 0;
    index changed_first_ = 0;
    index changed_last_ = 0;
    index edited_size_ = 0;
    index retimed_from_ = 0;
    index retimed_to_ = 0;
    bool is_whole_ = false;
    std::vector<id> saved_{};
    std::vector<std::pair<index, flat_problem::cell_choice>> edited_cells_{};
    std::vector<std::pair<id, id>> edited_partners_{};
    double edited_value_ = never;
    double edited_objective_ = never;

    // Scratch.
    std::vector<id> scratch_{};
    std::uint64_t round_ = 0;
    std::vector<std::uint64_t> mark_;
    std::vector<std::uint64_t> lane_mark_;
    std::vector<double> free_;
    std::vector<double> lane_tail_;
    std::vector<double> level_;
    std::vector<double> first_start_;
    std::vector<std::vector<microbatch>> forwards_{};
    std::vector<id> first_parts_{};
    /// Used by `has_few_pairs`. `pair_mark_` has a mark for each overlap of the problem. `distinct_` has the number of
    /// distinct pairs on each rank.
    std::vector<std::uint64_t> pair_mark_{};
    std::vector<std::size_t> distinct_{};
    rank_resources<any_graph> resources_;
};

} // namespace optpipe::detail
