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

/// The earliest times of all operations under given sequences, by the rules of `simulate`, kept up to date under
/// edits.
///
/// After an edit only what changes is placed anew: from the first edited place of a lane until the lane is back in the
/// state that it was in (when it is free, what memory it holds, what it waits for), and wherever an input arrives at
/// another time. Operations whose times are in doubt are taken by their old start, so that hardly one is placed
/// twice.
class lane_times {
public:
    using id = flat_pipeline::id;
    static constexpr id none = flat_pipeline::none;
    static constexpr double never = std::numeric_limits<double>::infinity();

    explicit lane_times(lane_orders& lanes)
        : p_{&lanes.pipeline()}, lanes_{&lanes}, start_(p_->size(), 0.0), end_(p_->size(), 0.0),
          after_(p_->travels() ? p_->size() : 0), freed_by_(after_.size(), none), doubtful_(p_->size(), 0),
          logged_(p_->size(), 0), visits_(p_->size(), 0), settled_at_(at(p_->ranks()), 0),
          settled_(at(p_->ranks()), none), open_(at(p_->ranks()), 0), changed_out_(at(p_->ranks()), none),
          changed_in_(at(p_->ranks()), none) {}

    [[nodiscard]] double start(id i) const { return start_[at(i)]; }
    [[nodiscard]] double end(id i) const { return end_[at(i)]; }

    [[nodiscard]] schedule to_schedule(const any_graph& g) const {
        schedule result{g, {}};
        for (id i = 0; i < static_cast<id>(p_->size()); ++i)
            if (lanes_->active(i))
                result.operations.push_back({p_->operation_of(i), duration{start(i)}, duration{end(i)}});
        return result;
    }

    /// Places everything. False where ranks and links wait for each other in a circle. `placed` gets the operations one
    /// after the other as `simulate` can place them.
    template <class Sink> bool place_all(Sink placed) {
        return p_->travels() ? place_all_by<true>(placed) : place_all_by<false>(placed);
    }
    bool place_all() {
        return place_all([](id) {});
    }

    /// Follows the edits that are being tried. False where the sequences wait for each other in a circle, or as soon as
    /// some operation after the edited places, of which nothing before it is in doubt any more, is `too_late(number,
    /// start)`; then, and whenever the edits are taken back, `take_back` restores all times.
    /// Where it seems to run in a circle, a `hasty` caller gets false at once; else all is placed anew to be sure.
    template <class TooLate> bool follow(TooLate too_late, bool hasty = false) {
        hasty_ = hasty;
        return p_->travels() ? follow_by<true>(too_late) : follow_by<false>(too_late);
    }
    /// Whose release of memory an operation waited for, if that is what let it start.
    [[nodiscard]] id freed_by(id i) const { return freed_by_.empty() ? none : freed_by_[at(i)]; }
    void keep() {
        log_.clear();
        whole_.clear();
    }
    void take_back() {
        if (!whole_.empty()) {
            for (std::size_t i = 0; i < whole_.size(); ++i)
                restore(static_cast<id>(i), whole_[i]);
        }
        for (std::size_t i = log_.size(); i-- > 0;)
            restore(log_[i].first, log_[i].second);
        keep();
    }
    /// The least start, old or new, of all that got other times.
    [[nodiscard]] double first_change() const { return first_change_; }

private:
    /// A lane after an operation.
    struct state {
        double free = 0.0;
        double engine[2] = {0.0, 0.0};
        double level = 0.0;
        double last_acquired = 0.0;
        double host_level = 0.0;
        double host_last_acquired = 0.0;
        id released = 0;      ///< up to where releases by compute operations have been taken
        id sent = 0;          ///< the same for those by offloads
        id host_released = 0; ///< and those by reloads, on the host
        friend bool operator==(const state&, const state&) = default;
    };
    struct times {
        double start = 0.0;
        double end = 0.0;
        id freed_by = none;
        state after{};
    };
    using doubt = std::pair<double, id>;

    /// More visits of one operation in one round than this look like a circle.
    static constexpr char most_visits = 4;

    static std::size_t at(id i) { return static_cast<std::size_t>(i); }

    state before_first(id lane) const {
        state s;
        s.released = s.sent = s.host_released = lanes_->begin(lane);
        return s;
    }
    template <bool Travels> state state_before(id position, id lane) const {
        const id previous = lanes_->previous(position, lane);
        if (previous < lanes_->begin(lane)) return before_first(lane);
        if constexpr (Travels) {
            return after_[at((*lanes_)[previous])];
        } else {
            state s;
            s.free = end((*lanes_)[previous]);
            return s;
        }
    }

    /// When the inputs of an operation are there.
    double ready(id i, const flat_pipeline::kind_facts& f) const {
        switch (f.kind) {
        case operation_kind::forward: return f.has_input ? end(p_->on_stage(i, -1)) + f.hop : 0.0;
        case operation_kind::backward_input:
        case operation_kind::backward: {
            const auto kept = lanes_->away(i) ? operation_kind::reload : operation_kind::forward;
            const double stash = end(p_->sibling(i, kept));
            return f.has_input ? std::max(stash, end(lanes_->gradient(p_->on_stage(i, 1))) + f.hop) : stash;
        }
        case operation_kind::backward_weight: return end(p_->sibling(i, operation_kind::backward_input));
        case operation_kind::offload: return end(p_->sibling(i, operation_kind::forward));
        case operation_kind::reload: return end(p_->sibling(i, operation_kind::offload));
        }
        return 0.0;
    }
    /// Places the operation after what `s` describes, and lets `s` describe the lane after it.
    template <bool Travels> void place(id i, const flat_pipeline::kind_facts& f, state& s, id position) {
        double begin = ready(i, f);
        if (!Travels || !is_transfer(f.kind)) {
            begin = std::max(begin, s.free);
        } else {
            begin = std::max(begin, s.engine[f.engine]);
            if (f.channel != none) {
                const id before = lanes_->link_previous(i);
                if (before != none) begin = std::max(begin, end(before));
            }
        }
        if constexpr (Travels) {
            if (f.host_acquired > 0.0) begin = fit_host(f, s, begin, position);
            freed_by_[at(i)] = none;
            if (f.acquired > 0.0) begin = fit_device(i, f, s, begin, position);
        }
        start_[at(i)] = begin;
        const double finish = begin + f.duration;
        end_[at(i)] = finish;
        if (!Travels || !is_transfer(f.kind))
            s.free = finish;
        else
            s.engine[f.engine] = finish;
        if constexpr (Travels) after_[at(i)] = s;
    }

    /// The next release at or after `from` that stands before `position`: of a compute operation, or of a transfer.
    template <bool Transfer, bool Host> id next_release(id from, id position) const {
        for (; from < position; ++from) {
            const id i = (*lanes_)[from];
            if (!lanes_->active(i)) continue;
            const auto& f = p_->facts(i);
            if (Host ? f.host_released > 0.0 : (f.released > 0.0 && is_transfer(f.kind) == Transfer)) break;
        }
        return from;
    }
    double fit_device(id i, const flat_pipeline::kind_facts& f, state& s, double begin, id position) {
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
            s.level -= p_->facts((*lanes_)[taken++]).released;
        }
        s.level += f.acquired;
        s.last_acquired = begin;
        return begin;
    }
    double fit_host(const flat_pipeline::kind_facts& f, state& s, double begin, id position) const {
        begin = std::max(begin, s.host_last_acquired);
        const double limit = p_->host_limit(f.rank);
        for (;;) {
            s.host_released = next_release<true, true>(s.host_released, position);
            if (s.host_released >= position) break; // beyond it only where the lane before is still in doubt
            const double time = end((*lanes_)[s.host_released]);
            if (time > begin && s.host_level + f.host_acquired <= limit) break;
            begin = std::max(begin, time);
            s.host_level -= p_->facts((*lanes_)[s.host_released++]).host_released;
        }
        s.host_level += f.host_acquired;
        s.host_last_acquired = begin;
        return begin;
    }

    /// What an operation waits for outside its lane, if it hasn't been placed in the present round.
    id missing(id i, const flat_pipeline::kind_facts& f) const {
        id input = none;
        if (f.has_input)
            input = f.kind == operation_kind::forward ? p_->on_stage(i, -1) : lanes_->gradient(p_->on_stage(i, 1));
        else if (f.channel != none)
            input = lanes_->link_previous(i);
        return input != none && logged_[at(input)] != round_ ? input : none;
    }
    template <bool Travels, class Sink> bool place_all_by(Sink placed) {
        ++round_;
        next_.clear();
        states_.clear();
        std::size_t left = 0;
        for (id r = 0; r < p_->ranks(); ++r) {
            next_.push_back(lanes_->next(lanes_->begin(r) - 1, r));
            states_.push_back(before_first(r));
            left += next_.back() < lanes_->end(r) ? 1 : 0;
        }
        for (bool moved = true; moved && left > 0;) {
            moved = false;
            for (id r = 0; r < p_->ranks(); ++r) {
                id& position = next_[at(r)];
                if (position >= lanes_->end(r)) continue;
                for (; position < lanes_->end(r); position = lanes_->next(position, r)) {
                    const id i = (*lanes_)[position];
                    const auto& f = p_->facts(i);
                    if (missing(i, f) != none) break;
                    place<Travels>(i, f, states_[at(r)], position);
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

    void put_in_doubt(id i, double when) {
        if (doubtful_[at(i)] != 0) return;
        doubtful_[at(i)] = 1;
        doubts_.push_back({when, i});
        std::push_heap(doubts_.begin(), doubts_.end(), std::greater<doubt>{});
    }
    void put_in_doubt(id i) { put_in_doubt(i, start(i)); }
    void put_consumers_in_doubt(id i, const flat_pipeline::kind_facts& f) {
        switch (f.kind) {
        case operation_kind::forward:
            if (!p_->is_last_stage(i)) put_other_rank_in_doubt(p_->on_stage(i, 1), f);
            if (lanes_->away(i)) put_in_doubt(p_->sibling(i, operation_kind::offload));
            break;
        case operation_kind::backward_input:
        case operation_kind::backward:
            if (p_->stage_of(i) > 0) put_other_rank_in_doubt(lanes_->gradient(p_->on_stage(i, -1)), f);
            break;
        case operation_kind::backward_weight: break;
        case operation_kind::offload: put_in_doubt(p_->sibling(i, operation_kind::reload)); break;
        case operation_kind::reload: put_in_doubt(lanes_->gradient(i)); break;
        }
        if (f.channel != none) {
            const id after = lanes_->link_next(i);
            if (after != none) put_in_doubt(after);
        }
    }
    /// On the same rank the lane itself tells.
    void put_other_rank_in_doubt(id i, const flat_pipeline::kind_facts& f) {
        if (p_->facts(i).rank != f.rank) put_in_doubt(i);
    }

    template <bool Travels> void begin_round() {
        ++round_;
        circling_ = false;
        suspect_ = none;
        unsettled_ = 0;
        first_change_ = never;
        for (const auto& t : lanes_->touched()) {
            const id first = lanes_->next(t.first - 1, t.lane);
            const id last = lanes_->previous(t.last + 1, t.lane);
            settled_at_[at(t.lane)] = round_;
            settled_[at(t.lane)] = last;
            changed_out_[at(t.lane)] = changed_in_[at(t.lane)] = t.last;
            open_[at(t.lane)] = first <= last ? 1 : 0;
            unsettled_ += open_[at(t.lane)];
            if constexpr (Travels) lanes_->find_last_acquisition(t.lane);
            if (first < lanes_->end(t.lane)) put_in_doubt((*lanes_)[first]);
        }
        // What comes into use has times of long ago; they must not count as unchanged.
        for (const id i : lanes_->flipped()) {
            note(i);
            end_[at(i)] = std::numeric_limits<double>::quiet_NaN();
        }
        for (const auto& t : lanes_->touched_links()) {
            for (id position = t.first; position <= t.last; ++position)
                if (lanes_->active(lanes_->link_at(position))) put_in_doubt(lanes_->link_at(position));
            const id after = lanes_->link_next_from(t.last + 1, t.lane);
            if (after != none) put_in_doubt(after);
        }
    }
    template <bool Travels, class TooLate> bool follow_by(TooLate& too_late) {
        begin_round<Travels>();
        while (!doubts_.empty()) {
            std::pop_heap(doubts_.begin(), doubts_.end(), std::greater<doubt>{});
            const id i = doubts_.back().second;
            doubts_.pop_back();
            if (doubtful_[at(i)] == 0) continue;
            if (run<Travels>(i, too_late) && !convicted(too_late)) continue;
            for (const auto& d : doubts_)
                doubtful_[at(d.second)] = 0;
            doubts_.clear();
            return circling_ && !hasty_ && place_from_scratch();
        }
        return true;
    }
    /// Where the order of the visits was unlucky, or there is a circle.
    bool place_from_scratch() {
        for (std::size_t i = log_.size(); i-- > 0;)
            restore(log_[i].first, log_[i].second);
        log_.clear();
        for (std::size_t i = 0; i < p_->size(); ++i)
            whole_.push_back(remember(static_cast<id>(i)));
        first_change_ = 0.0;
        return place_all();
    }

    bool touched(id lane) const { return settled_at_[at(lane)] == round_; }
    /// Notes that a release of the lane has another time; the lane can't be back in its old state before it is taken.
    void release_changed(id lane, id position, operation_kind kind) {
        if (!touched(lane)) {
            settled_at_[at(lane)] = round_;
            settled_[at(lane)] = changed_out_[at(lane)] = changed_in_[at(lane)] = none;
        }
        auto& latest = is_transfer(kind) ? changed_in_[at(lane)] : changed_out_[at(lane)];
        latest = std::max(latest, position);
    }
    bool release_pending(id lane, id position, const state& s) const {
        if (!touched(lane) || position >= lanes_->last_acquisition(lane)) return false;
        return s.released <= changed_out_[at(lane)] || s.sent <= changed_in_[at(lane)] ||
               (s.host_released <= changed_in_[at(lane)] && p_->host_limit(lane) < never);
    }
    bool in_touched(id lane, id position) const { return touched(lane) && position <= settled_[at(lane)]; }

    /// Whether an operation that was too late stays so: nothing earlier is in doubt any more.
    template <class TooLate> bool convicted(TooLate& too_late) {
        if (suspect_ == none || unsettled_ > 0) return false;
        if (!doubts_.empty() && doubts_.front().first < start(suspect_)) return false;
        if (too_late(suspect_, start(suspect_))) return true;
        suspect_ = none;
        return false;
    }

    /// Places operations of one lane one after the other, from one in doubt until nothing changes any more, or until
    /// something elsewhere should come first.
    template <bool Travels, class TooLate> bool run(id i, TooLate& too_late) {
        const id lane = p_->facts(i).rank;
        id position = lanes_->position(i);
        state s = state_before<Travels>(position, lane);
        for (;;) {
            doubtful_[at(i)] = 0;
            const auto& f = p_->facts(i);
            note(i);
            const double old_start = start(i);
            const double old_end = end(i);
            state old;
            if constexpr (Travels) old = after_[at(i)];
            place<Travels>(i, f, s, position);
            if (++visits_[at(i)] > most_visits) return !(circling_ = true);
            const bool changed = end(i) != old_end;
            if (changed || start(i) != old_start) {
                first_change_ = std::min({first_change_, old_start, start(i)});
                put_consumers_in_doubt(i, f);
                if (Travels && (f.released > 0.0 || f.host_released > 0.0)) release_changed(lane, position, f.kind);
            }
            const bool inside = in_touched(lane, position);
            if (!inside && changed && suspect_ == none && too_late(i, start(i))) {
                suspect_ = i;
                if (convicted(too_late)) return false;
            }
            if (inside && position == settled_[at(lane)]) unsettled_ -= std::exchange(open_[at(lane)], char{0});
            bool on = inside || changed;
            if constexpr (Travels) on = inside || !(s == old) || release_pending(lane, position, s);
            if (!on) return true;
            position = lanes_->next(position, lane);
            if (position >= lanes_->end(lane)) return true;
            i = (*lanes_)[position];
            const double when = std::min(start(i), s.free);
            if (!doubts_.empty() && doubts_.front().first < when) {
                doubtful_[at(i)] = 0; // it may stand there with a later time
                put_in_doubt(i, when);
                return true;
            }
        }
    }

    const flat_pipeline* p_;
    lane_orders* lanes_;
    std::vector<double> start_;
    std::vector<double> end_;
    std::vector<state> after_;
    std::vector<id> freed_by_;
    std::vector<char> doubtful_;
    std::vector<std::size_t> logged_;
    std::vector<char> visits_;
    std::vector<doubt> doubts_;
    std::vector<std::pair<id, times>> log_;
    std::vector<times> whole_;
    std::size_t round_ = 0;
    bool hasty_ = false;
    bool circling_ = false;
    id suspect_ = none;
    id unsettled_ = 0; ///< lanes whose edited part hasn't been passed to its end
    double first_change_ = never;

    // Per lane, where `settled_at_` says this round: the end of the edited part, and the last release that got another
    // time.
    std::vector<std::size_t> settled_at_;
    std::vector<id> settled_;
    std::vector<char> open_; ///< not passed to its end yet
    std::vector<id> changed_out_;
    std::vector<id> changed_in_;

    std::vector<id> next_;
    std::vector<state> states_;
};

} // namespace optpipe::detail
