#pragma once

#include "optpipe/planner/local_search/lane_orders.hpp"
#include "optpipe/schedule/schedule.hpp"

#include <algorithm>
#include <cstddef>
#include <functional>
#include <limits>
#include <utility>
#include <vector>

namespace optpipe::detail {

/// The earliest times of all operations under given sequences, by the rules of `simulate`. Times are updated after
/// edits.
///
/// After an edit, only changes are propagated. Propagation begins at the first edited position of a lane, and wherever
/// an input arrives at another time. Propagation ends where the lane's state is the same as before the edit. A lane's
/// state is the time at which it is free, its memory and its pending releases. Dirty operations are processed in the
/// order of their old starts: hardly any operation is placed twice.
class lane_times {
public:
    using id = flat_problem::id;
    static constexpr id none = flat_problem::none;
    static constexpr double never = std::numeric_limits<double>::infinity();

    explicit lane_times(const lane_orders& lanes)
        : p_{&lanes.flat()}, lanes_{&lanes}, start_(p_->size(), 0.0), end_(p_->size(), 0.0),
          after_(p_->offloads() ? p_->size() : 0), freed_by_(after_.size(), none), dirty_(p_->size(), 0),
          logged_(p_->size(), 0), visits_(p_->size(), 0), settled_at_(at(p_->ranks()), 0),
          settled_(at(p_->ranks()), none), changed_out_(at(p_->ranks()), none), changed_in_(at(p_->ranks()), none),
          last_acquisition_(at(p_->ranks()), none) {}

    [[nodiscard]] double start(id i) const { return start_[at(i)]; }
    [[nodiscard]] double end(id i) const { return end_[at(i)]; }

    [[nodiscard]] schedule to_schedule(const any_graph& g) const {
        schedule result{g, {}};
        for (id i = 0; i < static_cast<id>(p_->size()); ++i)
            if (lanes_->active(i))
                result.operations.push_back({lanes_->operation_of(i), duration{start(i)}, duration{end(i)}});
        return result;
    }

    /// Computes all times. Returns false if ranks and links wait for each other in a cycle. Calls `placed` with the
    /// operations in an order in which `simulate` can place them.
    template <class Sink> bool place_all(Sink placed) {
        return p_->offloads() ? place_all_by<true>(placed) : place_all_by<false>(placed);
    }
    bool place_all() {
        return place_all([](id) {});
    }

    /// Propagates the tentative edits. Returns false if the sequences wait for each other in a cycle. Returns false as
    /// soon as an operation after the edits has a final start with `too_late(number, start)`. Call `rollback` if the
    /// result is false or the edits are rolled back. `rollback` restores all times. If a cycle is suspected and
    /// `fail_fast` is true, the function returns false at once. If `fail_fast` is false, the function computes all
    /// times again.
    template <class TooLate> bool propagate(TooLate too_late, bool fail_fast = false) {
        fail_fast_ = fail_fast;
        return p_->offloads() ? propagate_by<true>(too_late) : propagate_by<false>(too_late);
    }
    /// The operation whose release of memory determined the start of `i`, if any.
    [[nodiscard]] id freed_by(id i) const { return freed_by_.empty() ? none : freed_by_[at(i)]; }
    void commit() {
        log_.clear();
        snapshot_.clear();
    }
    void rollback() {
        if (!snapshot_.empty()) {
            for (std::size_t i = 0; i < snapshot_.size(); ++i)
                restore(static_cast<id>(i), snapshot_[i]);
        }
        for (std::size_t i = log_.size(); i-- > 0;)
            restore(log_[i].first, log_[i].second);
        commit();
    }
    /// The least start, before or after the edit, of all operations whose times changed.
    [[nodiscard]] double first_change() const { return first_change_; }

private:
    /// The state of a lane after an operation.
    struct state {
        double free = 0.0;
        double engine[2] = {0.0, 0.0};
        double level = 0.0;
        double last_acquired = 0.0;
        double host_level = 0.0;
        double host_last_acquired = 0.0;
        id released = 0;      ///< releases by compute operations before this position are processed
        id sent = 0;          ///< releases by offloads before this position are processed
        id host_released = 0; ///< releases of host memory by reloads before this position are processed
        friend bool operator==(const state&, const state&) = default;
    };
    struct times {
        double start = 0.0;
        double end = 0.0;
        id freed_by = none;
        state after{};
    };
    using dirty_entry = std::pair<double, id>;

    /// A cycle is suspected if one propagation visits an operation more than this number of times. Not tuned.
    static constexpr char most_visits = 4;

    static std::size_t at(id i) { return static_cast<std::size_t>(i); }

    state before_first(id lane) const {
        state s;
        s.released = s.sent = s.host_released = lanes_->begin(lane);
        return s;
    }
    template <bool Offloads> state state_before(id position, id lane) const {
        const id previous = lanes_->previous(position, lane);
        if (previous < lanes_->begin(lane)) return before_first(lane);
        if constexpr (Offloads) {
            return after_[at((*lanes_)[previous])];
        } else {
            state s;
            s.free = end((*lanes_)[previous]);
            return s;
        }
    }

    /// Places the operation on a lane in state `s`, and updates `s`.
    template <bool Offloads> void place(id i, const flat_problem::facts& f, state& s, id position) {
        double begin = p_->ready(i, f, [this](id before) { return end(before); });
        if (!Offloads || !is_transfer(f.kind)) {
            begin = std::max(begin, s.free);
        } else {
            begin = std::max(begin, s.engine[f.engine]);
            if (f.channel != none) {
                const id before = lanes_->link_previous(i);
                if (before != none) begin = std::max(begin, end(before));
            }
        }
        if constexpr (Offloads) {
            if (f.host_acquired > 0.0) begin = fit_host(f, s, begin, position);
            freed_by_[at(i)] = none;
            if (f.acquired > 0.0) begin = fit_device(i, f, s, begin, position);
        }
        start_[at(i)] = begin;
        const double finish = begin + f.duration;
        end_[at(i)] = finish;
        if (!Offloads || !is_transfer(f.kind))
            s.free = finish;
        else
            s.engine[f.engine] = finish;
        if constexpr (Offloads) after_[at(i)] = s;
    }

    /// The position of the next release, by a compute operation or by a transfer, in [from, position).
    template <bool Transfer, bool Host> id next_release(id from, id position) const {
        for (; from < position; ++from) {
            const id i = (*lanes_)[from];
            if (!lanes_->active(i)) continue;
            const auto& f = lanes_->facts(i);
            if (Host ? f.host_released > 0.0 : (f.released > 0.0 && is_transfer(f.kind) == Transfer)) break;
        }
        return from;
    }
    double fit_device(id i, const flat_problem::facts& f, state& s, double begin, id position) {
        begin = std::max(begin, s.last_acquired);
        const double limit = p_->limit(f.rank);
        for (;;) {
            s.released = next_release<false, false>(s.released, position);
            s.sent = next_release<true, false>(s.sent, position);
            const double by_compute = s.released < position ? end((*lanes_)[s.released]) : never;
            const double by_transfer = s.sent < position ? end((*lanes_)[s.sent]) : never;
            const bool first = by_compute <= by_transfer;
            const double time = first ? by_compute : by_transfer;
            if (time == never || (time > begin && s.level + f.acquired <= limit)) break;
            auto& taken = first ? s.released : s.sent;
            if (time > begin) {
                begin = time;
                freed_by_[at(i)] = (*lanes_)[taken];
            }
            s.level -= lanes_->facts((*lanes_)[taken++]).released;
        }
        s.level += f.acquired;
        s.last_acquired = begin;
        return begin;
    }
    double fit_host(const flat_problem::facts& f, state& s, double begin, id position) const {
        begin = std::max(begin, s.host_last_acquired);
        const double limit = p_->host_limit(f.rank);
        for (;;) {
            s.host_released = next_release<true, true>(s.host_released, position);
            if (s.host_released >= position) break; // passes `position` only if an earlier position is dirty
            const double time = end((*lanes_)[s.host_released]);
            if (time > begin && s.host_level + f.host_acquired <= limit) break;
            begin = std::max(begin, time);
            s.host_level -= lanes_->facts((*lanes_)[s.host_released++]).host_released;
        }
        s.host_level += f.host_acquired;
        s.host_last_acquired = begin;
        return begin;
    }

    /// Whether all predecessors on other lanes have been placed in this pass.
    bool has_all_others(id i, const flat_problem::facts& f) const {
        for (const auto& in : p_->neighbours(f.inputs))
            if (logged_[at(i + in.difference)] != round_) return false;
        const id before = f.channel == none ? none : lanes_->link_previous(i);
        return before == none || logged_[at(before)] == round_;
    }
    template <bool Offloads, class Sink> bool place_all_by(Sink placed) {
        ++round_;
        next_.clear();
        states_.clear();
        std::size_t left = 0;
        for (id r = 0; r < p_->ranks(); ++r) {
            next_.push_back(lanes_->next(lanes_->begin(r) - 1, r));
            states_.push_back(before_first(r));
            if (next_.back() < lanes_->end(r)) ++left;
        }
        for (bool moved = true; moved && left > 0;) {
            moved = false;
            for (id r = 0; r < p_->ranks(); ++r) {
                id& position = next_[at(r)];
                if (position >= lanes_->end(r)) continue;
                for (; position < lanes_->end(r); position = lanes_->next(position, r)) {
                    const id i = (*lanes_)[position];
                    const auto& f = lanes_->facts(i);
                    if (!has_all_others(i, f)) break;
                    place<Offloads>(i, f, states_[at(r)], position);
                    logged_[at(i)] = round_;
                    placed(i);
                    moved = true;
                }
                if (position >= lanes_->end(r)) --left;
            }
        }
        return left == 0;
    }

    void note(id i) {
        if (logged_[at(i)] == round_) return;
        logged_[at(i)] = round_;
        visits_[at(i)] = 0;
        log_.push_back({i, remember(i)});
    }
    times remember(id i) const {
        if (after_.empty()) return {start_[at(i)], end_[at(i)]};
        return {start_[at(i)], end_[at(i)], freed_by_[at(i)], after_[at(i)]};
    }
    void restore(id i, const times& t) {
        start_[at(i)] = t.start;
        end_[at(i)] = t.end;
        if (after_.empty()) return;
        freed_by_[at(i)] = t.freed_by;
        after_[at(i)] = t.after;
    }

    void mark_dirty(id i, double when) {
        if (dirty_[at(i)] != 0) return;
        dirty_[at(i)] = 1;
        dirty_queue_.push_back({when, i});
        std::push_heap(dirty_queue_.begin(), dirty_queue_.end(), std::greater<dirty_entry>{});
    }
    void mark_dirty(id i) { mark_dirty(i, start(i)); }
    void mark_consumers_dirty(id i, const flat_problem::facts& f) {
        for (const auto& next : p_->neighbours(f.consumers))
            mark_other_rank_dirty(i + next.difference, f);
        // Propagation reaches compute operations of the same stage along the lane.
        if (f.kind == operation_kind::forward && lanes_->is_offloaded(i))
            mark_dirty(p_->sibling(i, operation_kind::offload));
        if (f.kind == operation_kind::offload) mark_dirty(p_->sibling(i, operation_kind::reload));
        if (f.kind == operation_kind::reload) mark_dirty(lanes_->user_of_stash(i));
        if (f.channel != none) {
            const id after = lanes_->link_next(i);
            if (after != none) mark_dirty(after);
        }
    }
    /// Marks an operation as dirty if it is on another rank. Operations on the same rank are reached along the lane.
    void mark_other_rank_dirty(id i, const flat_problem::facts& f) {
        if (lanes_->facts(i).rank != f.rank) mark_dirty(i);
    }

    template <bool Offloads> void start_propagation() {
        ++round_;
        cycling_ = false;
        late_candidate_ = none;
        first_change_ = never;
        for (const auto& t : lanes_->touched()) {
            const id first = lanes_->next(t.first - 1, t.lane);
            settled_at_[at(t.lane)] = round_;
            settled_[at(t.lane)] = lanes_->previous(t.last + 1, t.lane);
            changed_out_[at(t.lane)] = changed_in_[at(t.lane)] = t.last;
            if constexpr (Offloads) find_last_acquisition(t.lane);
            if (first < lanes_->end(t.lane)) mark_dirty((*lanes_)[first]);
        }
        // Flipped operations get NaN as their end. With old ends, stale times of activated operations would count as
        // unchanged. Deactivated operations could still delay other operations.
        for (const id i : lanes_->flipped()) {
            note(i);
            if (!lanes_->active(i)) first_change_ = std::min(first_change_, start(i));
            end_[at(i)] = std::numeric_limits<double>::quiet_NaN();
        }
        for (const auto& t : lanes_->touched_links()) {
            for (id position = t.first; position <= t.last; ++position)
                if (lanes_->active(lanes_->link_at(position))) mark_dirty(lanes_->link_at(position));
            const id after = lanes_->link_next_from(t.last + 1, t.lane);
            if (after != none) mark_dirty(after);
        }
    }
    template <bool Offloads, class TooLate> bool propagate_by(TooLate& too_late) {
        start_propagation<Offloads>();
        while (!dirty_queue_.empty()) {
            std::pop_heap(dirty_queue_.begin(), dirty_queue_.end(), std::greater<dirty_entry>{});
            const id i = dirty_queue_.back().second;
            dirty_queue_.pop_back();
            if (dirty_[at(i)] == 0) continue;
            if (run<Offloads>(i, too_late) && !confirmed_late(too_late)) continue;
            for (const auto& d : dirty_queue_)
                dirty_[at(d.second)] = 0;
            dirty_queue_.clear();
            return cycling_ && !fail_fast_ && place_from_scratch();
        }
        return true;
    }
    /// Computes all times again, to find out whether a suspected cycle exists.
    bool place_from_scratch() {
        for (std::size_t i = log_.size(); i-- > 0;)
            restore(log_[i].first, log_[i].second);
        log_.clear();
        for (std::size_t i = 0; i < p_->size(); ++i)
            snapshot_.push_back(remember(static_cast<id>(i)));
        first_change_ = 0.0;
        return place_all();
    }

    bool touched(id lane) const { return settled_at_[at(lane)] == round_; }
    void find_last_acquisition(id lane) {
        id here = lanes_->end(lane) - 1;
        while (here > lanes_->begin(lane) &&
               !(lanes_->active_at(here) && lanes_->facts((*lanes_)[here]).acquired > 0.0))
            --here;
        last_acquisition_[at(lane)] = here;
    }
    /// Notes that a release of the lane changed. The lane can't be in its old state before the changed release is
    /// processed.
    void release_changed(id lane, id position, operation_kind kind) {
        if (!touched(lane)) {
            settled_at_[at(lane)] = round_;
            settled_[at(lane)] = changed_out_[at(lane)] = changed_in_[at(lane)] = none;
            find_last_acquisition(lane);
        }
        auto& latest = is_transfer(kind) ? changed_in_[at(lane)] : changed_out_[at(lane)];
        latest = std::max(latest, position);
    }
    bool release_pending(id lane, id position, const state& s) const {
        if (!touched(lane) || position >= last_acquisition_[at(lane)]) return false;
        return s.released <= changed_out_[at(lane)] || s.sent <= changed_in_[at(lane)] ||
               (s.host_released <= changed_in_[at(lane)] && p_->host_limit(lane) < never);
    }
    bool in_touched(id lane, id position) const { return touched(lane) && position <= settled_[at(lane)]; }

    /// Whether `late_candidate_` is still too late and nothing earlier is dirty.
    template <class TooLate> bool confirmed_late(TooLate& too_late) {
        if (late_candidate_ == none) return false;
        if (!dirty_queue_.empty() && dirty_queue_.front().first < start(late_candidate_)) return false;
        if (too_late(late_candidate_, start(late_candidate_))) return true;
        late_candidate_ = none;
        return false;
    }

    /// Places operations of a lane from a dirty operation on. Stops when nothing changes or an earlier operation of
    /// another lane is dirty.
    template <bool Offloads, class TooLate> bool run(id i, TooLate& too_late) {
        const id lane = lanes_->facts(i).rank;
        id position = lanes_->position(i);
        state s = state_before<Offloads>(position, lane);
        for (;;) {
            dirty_[at(i)] = 0;
            const auto& f = lanes_->facts(i);
            note(i);
            const double old_start = start(i);
            const double old_end = end(i);
            state old;
            if constexpr (Offloads) old = after_[at(i)];
            place<Offloads>(i, f, s, position);
            if (++visits_[at(i)] > most_visits) {
                cycling_ = true;
                return false;
            }
            const bool changed = end(i) != old_end;
            if (changed || start(i) != old_start) {
                first_change_ = std::min({first_change_, old_start, start(i)});
                mark_consumers_dirty(i, f);
                if (Offloads && (f.released > 0.0 || f.host_released > 0.0)) release_changed(lane, position, f.kind);
            }
            const bool inside = in_touched(lane, position);
            if (!inside && changed && late_candidate_ == none && too_late(i, start(i))) {
                late_candidate_ = i;
                if (confirmed_late(too_late)) return false;
            }
            bool on = inside || changed;
            if constexpr (Offloads) on = inside || !(s == old) || release_pending(lane, position, s);
            if (!on) return true;
            position = lanes_->next(position, lane);
            if (position >= lanes_->end(lane)) return true;
            i = (*lanes_)[position];
            const double when = std::min(start(i), s.free);
            if (!dirty_queue_.empty() && dirty_queue_.front().first < when) {
                dirty_[at(i)] = 0; // the operation may be queued with a later time
                mark_dirty(i, when);
                return true;
            }
        }
    }

    const flat_problem* p_;
    const lane_orders* lanes_;
    std::vector<double> start_;
    std::vector<double> end_;
    std::vector<state> after_;
    std::vector<id> freed_by_;
    std::vector<char> dirty_;
    std::vector<std::size_t> logged_;
    std::vector<char> visits_;
    std::vector<dirty_entry> dirty_queue_;
    std::vector<std::pair<id, times>> log_;
    std::vector<times> snapshot_;
    std::size_t round_ = 0;
    bool fail_fast_ = false;
    bool cycling_ = false;
    id late_candidate_ = none;
    double first_change_ = never;

    // For each lane: the end of the edited range, the last changed releases by a computation and by a transfer, and the
    // position of the last acquisition of memory. An entry is valid if its `settled_at_` is the current round.
    std::vector<std::size_t> settled_at_;
    std::vector<id> settled_;
    std::vector<id> changed_out_;
    std::vector<id> changed_in_;
    std::vector<id> last_acquisition_;

    std::vector<id> next_;
    std::vector<state> states_;
};

} // namespace optpipe::detail
