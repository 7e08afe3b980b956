#pragma once

#include "optpipe/planner/local_search/lane_times.hpp"

#include <algorithm>
#include <cstddef>
#include <vector>

namespace optpipe::detail {

/// The cost of sequences and their times: the objective of `time_order`, and the mean of the ranks' engaged times.
class lane_objective {
public:
    using id = flat_problem::id;

    lane_objective(const lane_orders& lanes, const lane_times& times)
        : p_{&lanes.flat()}, lanes_{&lanes}, times_{&times}, engaged_(at(p_->ranks()), 0.0),
          first_(at(p_->ranks()), 0.0), committed_first_(first_), left_(at(p_->ranks()), 0),
          late_(p_->span() ? p_->size() : 0, 0.0), late_in_(late_.size(), 0) {}

    /// Evaluates all sequences from scratch.
    void measure() {
        committed_horizon_ = lane_times::never;
        measure_changes(0.0);
        commit();
    }
    /// Evaluates the sequences after an edit. `first_change` is the least start of the operations whose times changed,
    /// before or after the edit.
    void measure_changes(double first_change) {
        if (p_->span() && first_change <= committed_horizon_) {
            postpone_warm_up();
        } else {
            first_ = committed_first_;
            horizon_ = committed_horizon_;
        }
        value_ = 0.0;
        mean_ = 0.0;
        for (id r = 0; r < p_->ranks(); ++r) {
            const id last = lanes_->last_compute(r);
            engaged_[at(r)] = last == flat_problem::none ? 0.0 : times_->end(last) - first_[at(r)];
            value_ = std::max(value_, engaged_[at(r)]);
            mean_ += engaged_[at(r)] / static_cast<double>(p_->ranks());
        }
    }
    void commit() {
        committed_first_ = first_;
        committed_horizon_ = horizon_;
    }

    /// The objective (makespan or span).
    [[nodiscard]] double value() const { return value_; }
    /// The mean of the ranks' engaged times. `value` is the maximum of the engaged times.
    [[nodiscard]] double mean() const { return mean_; }
    [[nodiscard]] double engaged(id r) const { return engaged_[at(r)]; }
    /// For `span`, the first start of the rank in the last committed state. 0 for all other objectives.
    [[nodiscard]] double committed_first(id r) const { return committed_first_[at(r)]; }
    /// The time after which changes don't affect the first starts of ranks.
    [[nodiscard]] double horizon() const { return committed_horizon_; }

private:
    static std::size_t at(id i) { return static_cast<std::size_t>(i); }

    /// Postpones forwards like `optpipe::postpone_warm_up`. Forwards before a rank's first gradient start as late as
    /// their successors allow.
    void postpone_warm_up() {
        horizon_ = 0.0;
        round_ += 2;
        std::size_t open = 0;
        for (id r = 0; r < p_->ranks(); ++r) {
            find_warm_up(r);
            if (left_[at(r)] >= lanes_->begin(r)) ++open;
        }
        for (bool moved = true; moved && open > 0;) {
            moved = false;
            for (id r = p_->ranks(); r-- > 0;) {
                id& position = left_[at(r)];
                if (position < lanes_->begin(r)) continue;
                for (; position >= lanes_->begin(r) && postpone((*lanes_)[position], r); moved = true)
                    position = previous_compute(position, r);
                if (position < lanes_->begin(r)) --open;
            }
        }
    }
    id previous_compute(id position, id r) const {
        do
            position = lanes_->previous(position, r);
        while (position >= lanes_->begin(r) && is_transfer(lanes_->facts((*lanes_)[position]).kind));
        return position;
    }
    void find_warm_up(id r) {
        id position = lanes_->next(lanes_->begin(r) - 1, r);
        id last = lanes_->begin(r) - 1;
        for (; position < lanes_->end(r); position = lanes_->next(position, r)) {
            const id i = (*lanes_)[position];
            const auto kind = lanes_->facts(i).kind;
            if (is_transfer(kind)) continue;
            if (kind != operation_kind::forward) break;
            late_in_[at(i)] = round_; // marks a forward to postpone
            last = position;
        }
        const bool none = position >= lanes_->end(r);
        first_[at(r)] = none ? lane_times::never : times_->start((*lanes_)[position]);
        if (!none) horizon_ = std::max(horizon_, first_[at(r)]);
        left_[at(r)] = last;
    }
    /// Postpones a forward. Returns false if the successor of `i` on another rank must be postponed first.
    bool postpone(id i, id r) {
        double latest = first_[at(r)]; // the start of the next operation of the rank
        const auto limit_by = [&](id next, double start) {
            horizon_ = std::max(horizon_, times_->start(next));
            latest = std::min(latest, start);
        };
        for (const auto& next : p_->neighbours(lanes_->facts(i).consumers)) {
            const id after = i + next.difference;
            if (late_in_[at(after)] == round_) return false; // still to be postponed
            const bool late = late_in_[at(after)] == round_ + 1;
            limit_by(after, (late ? late_[at(after)] : times_->start(after)) - next.delay);
        }
        const id out = p_->sibling(i, operation_kind::offload);
        if (lanes_->active(out)) limit_by(out, times_->start(out));
        const id back = lanes_->user_of_stash(i);
        limit_by(back, times_->start(back));
        const double length = lanes_->facts(i).duration;
        const double start = latest > times_->end(i) ? latest - length : times_->start(i);
        horizon_ = std::max(horizon_, times_->end(i));
        late_[at(i)] = start;
        late_in_[at(i)] = round_ + 1;
        first_[at(r)] = start;
        return true;
    }

    const flat_problem* p_;
    const lane_orders* lanes_;
    const lane_times* times_;
    double value_ = 0.0;
    double mean_ = 0.0;
    double horizon_ = lane_times::never;
    double committed_horizon_ = lane_times::never;
    std::vector<double> engaged_;
    std::vector<double> first_;
    std::vector<double> committed_first_;
    std::vector<id> left_;
    std::vector<double> late_;
    std::vector<std::size_t> late_in_;
    std::size_t round_ = 0; ///< even; the odd number `round_` + 1 marks forwards that are done
};

} // namespace optpipe::detail
