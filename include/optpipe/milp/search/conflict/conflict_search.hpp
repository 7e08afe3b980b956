#pragma once

#include "optpipe/core/random.hpp"
#include "optpipe/core/stop_check.hpp"
#include "optpipe/learning/luby.hpp"
#include "optpipe/learning/vsids.hpp"
#include "optpipe/milp/bytes.hpp"
#include "optpipe/milp/search/conflict/analysis.hpp"
#include "optpipe/milp/search/conflict/dispatcher.hpp"
#include "optpipe/milp/search/conflict/least_bound_queue.hpp"
#include "optpipe/milp/search/propagation/propagator.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace optpipe::milp::search {

enum class search_outcome : unsigned char {
    refuted,       ///< no point is left below the cutoff
    assumed_false, ///< no point below the cutoff meets the assumption
    point,         ///< all integer columns are fixed, and propagation found nothing wrong
    budget,        ///< the conflict budget is used up
};

/// Parameters for restarts and clause deletion in `conflict_search`. Not tuned.
struct conflict_parameters {
    /// Unit of the random initial activities, which make runs with different seeds differ. Initial activities are at
    /// most 1000 · `tie_breaker`, less than the increase at one conflict.
    double tie_breaker = 1e-6;
    /// Activities are multiplied by this factor after each conflict, as in MiniSat. With a lower factor, the last
    /// conflicts count more.
    double activity_decay = 0.95;
    /// The search restarts after `restart_unit` times the next term of Luby's sequence, counted in conflicts. A smaller
    /// unit gives up bad first decisions earlier, but repeats more work.
    std::size_t restart_unit = 100;
    /// Number of propagation rounds between two checks of the clock.
    std::size_t rounds_between_looks = 64;
    /// Half of the learned clauses are deleted at this number, which then grows. More clauses prune more, but slow
    /// propagation down.
    std::size_t most_learned = 4000;
    std::size_t learned_growth = 500;
};

/// Depth-first search on the integer columns without any relaxation. The search decides columns of recent conflicts,
/// propagates, learns clauses and restarts. Learned clauses are kept from run to run.
class conflict_search {
public:
    conflict_search(const problem& p, std::uint64_t seed)
        : problem_{&p}, engine_{p}, analysis_{p}, order_{p.columns()}, phase_(p.columns(), unknown),
          is_general_(p.columns()), dispatcher_{p}, random_{seed} {
        constexpr std::size_t grains = 1000;
        for (std::size_t j = 0; j < p.columns(); ++j)
            if (p.kind[j] == column_kind::implied) {
                implied_.push_back(j);
            } else if (p.is_integer(j)) {
                order_.set_activity(j, with_.tie_breaker * static_cast<double>(random_.below(grains)));
                order_.insert(j);
            }
        for (std::size_t j = 0; j < p.columns(); ++j) {
            const bool is_general =
                p.is_integral(j) && p.prefers_upper[j] == 0 && p.lower[j] > -infinity && p.upper[j] > p.lower[j] + 1.0;
            is_general_[j] = is_general ? 1 : 0;
            if (is_general) general_integers_.push_back(j);
        }
    }

    [[nodiscard]] propagator& engine() { return engine_; }
    [[nodiscard]] std::size_t bytes() const {
        return engine_.bytes() + analysis_.bytes() + order_.bytes() + least_bound_queue_.bytes() + dispatcher_.bytes() +
               bytes_of(phase_, implied_, is_general_, general_integers_, requeued_);
    }
    [[nodiscard]] std::size_t row_visits() const { return engine_.row_visits(); }
    [[nodiscard]] std::size_t conflicts() const { return conflicts_; }

    void set_cutoff(double value) {
        restart();
        engine_.set_cutoff(value);
    }
    /// Sets the value that the search tries first for a column.
    void set_phase(std::size_t j, double value) { phase_[j] = value; }

    /// Whether there are general integer variables, for `begin_least_bound_first`.
    [[nodiscard]] bool has_general_integers() const {
        return !general_integers_.empty() && general_integers_.size() < order_.size();
    }
    /// From now on, the search first fixes the general integer variable with the least lower bound. If the variables
    /// are start times of jobs, this rule is list scheduling.
    void begin_least_bound_first() {
        restart();
        least_bound_first_ = true;
        least_bound_queue_.clear();
        for (const auto j : general_integers_)
            least_bound_queue_.insert(j, least_bound_key(j));
    }
    void end_least_bound_first() { least_bound_first_ = false; }

    /// Whether `begin_dispatching` has decisions to make. The decisions are binaries that order two columns, such as
    /// start times of jobs.
    [[nodiscard]] bool can_dispatch() const { return dispatcher_.has_start_columns(); }
    /// From now on, binaries that order two columns are decided first. Each call selects another dispatching rule.
    void begin_dispatching() {
        restart();
        dispatching_ = true;
        dispatcher_.change_rule(engine_.bounds(), random_);
    }
    void end_dispatching() { dispatching_ = false; }

    /// Searches for a point below the cutoff, perhaps under an assumption. After `point`, the bounds stay fixed at the
    /// point until the next call.
    search_outcome run(std::size_t conflict_budget, std::optional<literal> assumption, stop_check stop = {}) {
        restart();
        const auto end = conflicts_ + conflict_budget;
        std::size_t until_restart = restart_length();
        std::size_t rounds = 0;
        while (true) {
            if (!engine_.propagate()) {
                ++conflicts_;
                if (!learn_from_conflict()) return search_outcome::refuted;
                until_restart -= until_restart > 0 ? 1 : 0;
                continue;
            }
            if (conflicts_ >= end || (++rounds % with_.rounds_between_looks == 0 && stop()))
                return leave(search_outcome::budget);
            if (until_restart == 0) {
                restart();
                until_restart = restart_length();
                continue;
            }
            if (engine_.level() == 0 && !open_root()) return search_outcome::refuted;
            if (engine_.level() == 0 && assumption && !engine_.bounds().is_true(*assumption)) {
                if (engine_.bounds().is_false(*assumption)) return search_outcome::assumed_false;
                engine_.decide(*assumption);
                continue;
            }
            const auto next = choose();
            if (!next) return search_outcome::point;
            engine_.decide(*next);
        }
    }
    void restart() { retreat(0); }
    /// Learns from the current conflict of the propagator. Returns false if the conflict refutes the problem.
    bool learn_from_conflict() {
        if (engine_.refuted()) return false;
        const std::vector<literal> conflict = engine_.conflict();
        const auto learned = analysis_.analyze(engine_, conflict);
        for (const auto j : analysis_.involved())
            if (problem_->is_integer(j)) order_.bump(j);
        order_.decay(with_.activity_decay);
        engine_.learned().decay();
        retreat(learned.back_to);
        return engine_.learn(learned.literals, true, learned.levels) || !engine_.refuted();
    }

private:
    static constexpr conflict_parameters with_{};

    static constexpr double unknown = std::numeric_limits<double>::quiet_NaN();

    search_outcome leave(search_outcome outcome) {
        restart();
        return outcome;
    }
    void retreat(std::uint32_t level) {
        const auto& d = engine_.bounds();
        if (level >= d.level()) return;
        for (auto i = d.start_of(level + 1); i < d.changes(); ++i) {
            const auto j = column_of(d.at(i).bound);
            if (least_bound_first_ && is_general_[j] != 0) requeued_.push_back(j);
            if (!problem_->is_integer(j)) continue;
            if (d.is_fixed(j)) phase_[j] = d.lower(j);
            order_.insert(j);
        }
        engine_.back_to(level);
        dispatcher_.reset_current();
        for (const auto j : requeued_)
            least_bound_queue_.insert(j, least_bound_key(j));
        requeued_.clear();
    }
    [[nodiscard]] double least_bound_key(std::size_t j) const { return problem_->unit[j] * engine_.bounds().lower(j); }
    bool open_root() {
        if (engine_.learned().learned() > learned_limit_) {
            engine_.learned().forget_half();
            learned_limit_ += with_.learned_growth;
        }
        return !engine_.refuted();
    }
    /// Length of the next restart in conflicts.
    std::size_t restart_length() { return with_.restart_unit * learning::luby(++restarts_); }
    std::optional<literal> choose() {
        const auto& d = engine_.bounds();
        if (dispatching_)
            if (const auto l = dispatcher_.next(d)) return l;
        if (least_bound_first_) {
            const auto key = [&](std::size_t j) { return least_bound_key(j); };
            const auto is_done = [&](std::size_t j) { return d.is_fixed(j); };
            if (const auto j = least_bound_queue_.pop(key, is_done)) return at_most(*j, d.lower(*j));
        }
        while (const auto j = order_.pop()) {
            if (d.is_fixed(*j)) continue;
            order_.insert(*j); // the column is put back, because it stays in the queue until it is fixed
            return decision(*j);
        }
        for (const auto j : implied_)
            if (!d.is_fixed(j))
                return problem_->prefers_upper[j] != 0 ? at_least(j, d.upper(j)) : at_most(j, d.lower(j));
        return std::nullopt;
    }
    [[nodiscard]] literal decision(std::size_t j) const {
        const auto& d = engine_.bounds();
        const double low = d.lower(j), up = d.upper(j);
        double value = std::isnan(phase_[j]) ? (std::isfinite(low) ? low : up) : phase_[j];
        if (!std::isfinite(value)) value = 0.0;
        value = std::clamp(value, low, up);
        return value < up ? at_most(j, value) : at_least(j, value);
    }

    const problem* problem_;
    propagator engine_;
    conflict_analysis analysis_;
    learning::vsids order_;
    std::vector<double> phase_;
    std::vector<std::size_t> implied_;
    std::vector<unsigned char> is_general_;
    std::vector<std::size_t> general_integers_;
    least_bound_queue least_bound_queue_;
    std::vector<std::size_t> requeued_;
    bool least_bound_first_ = false;
    dispatcher dispatcher_;
    bool dispatching_ = false;
    random_numbers random_;
    std::size_t conflicts_ = 0;
    std::size_t restarts_ = 0;
    std::size_t learned_limit_ = with_.most_learned;
};

} // namespace optpipe::milp::search
