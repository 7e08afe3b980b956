#pragma once

#include "optpipe/core/stop_check.hpp"
#include "optpipe/pipeline/problem.hpp"
#include "optpipe/planner/modulo/completion.hpp"
#include "optpipe/planner/modulo/parameters.hpp"
#include "optpipe/planner/modulo/pattern.hpp"
#include "optpipe/planner/modulo/unroll.hpp"
#include "optpipe/planner/portfolio/search_state.hpp"
#include "optpipe/schedule/time/evaluate.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <functional>
#include <memory>
#include <utility>

namespace optpipe::detail {

/// Completes patterns in a reduced problem, and unrolls the result to all microbatches. The reduced problem has only
/// the microbatches that prologue and epilogue need.
class steady_state {
public:
    explicit steady_state(search_state& state, const steady_state_parameters& with = {})
        : state_{state}, p_{state.problem()}, with_{with}, reduced_{with_microbatches(p_, enough())} {}

    [[nodiscard]] const problem& reduced() const { return reduced_; }
    [[nodiscard]] bool is_reduced() const { return reduced_.graph.microbatches() < p_.graph.microbatches(); }

    /// Completes a pattern in several ways in the reduced problem. Offers each completion that may be better than all
    /// earlier completions.
    void offer(const periodic_pattern& pattern) {
        if (with_.completion_gain * static_cast<double>(p_.graph.microbatches()) * pattern.period > best_value_) return;
        const bool may_refill = can_refill(p_, pattern);
        for (const bool refill : {false, true})
            for (const double ahead : with_.ahead)
                if ((!refill || may_refill) && !state_.done()) offer(pattern, {ahead, refill});
    }
    /// Unrolls the best schedule of the reduced problem, and each shorter schedule from `improve`. Does nothing if the
    /// best schedule is far behind the incumbent.
    void finish(const std::function<void(search_state&)>& improve) {
        if (best_value_.is_unlimited() || !is_reduced() || best_value_ > with_.max_ratio * state_.objective()) return;
        unroll_to_all(best_);
        if (!improve || state_.done()) return;
        search_state inner{reduced_, state_.limits()};
        inner.offer(best_, name);
        improve(inner);
        if (inner.objective() < objective_of(reduced_, best_)) unroll_to_all(*inner.incumbent());
    }
    /// Unrolls a segment of the steady state of a reduced schedule, and offers the result.
    void unroll_to_all(const schedule& shorter) {
        const auto lanes = lanes_by_start(reduced_, shorter);
        const segment_finder finder{reduced_, lanes};
        const auto last = last_end(shorter);
        auto least = duration::unlimited();
        repeated_segment best;
        for (const auto count : with_.counts)
            for (const double place : with_.segment_places) {
                if (missing() % count != 0 || state_.done()) continue;
                const auto segment = finder.find(place * last, count);
                if (!segment) continue;
                const auto value = value_of(lanes, *segment);
                if (!(value < least)) continue;
                least = value;
                best = *segment;
            }
        if (least < duration::unlimited() && !state_.abandoned())
            state_.offer(unroll(p_, lanes, best, missing() / best.count), name);
    }

private:
    static constexpr std::string_view name = "modulo";

    [[nodiscard]] stop_check abandon() const { return stop_check{state_.limits().abandon}; }
    [[nodiscard]] std::size_t missing() const { return p_.graph.microbatches() - reduced_.graph.microbatches(); }
    /// The number of microbatches of the reduced problem, about `pipelines` per rank. The number of microbatches left
    /// out is a multiple of each of `counts`.
    [[nodiscard]] std::size_t enough() const {
        const auto all = p_.graph.microbatches();
        const auto enough = with_.pipelines * std::max(p_.graph.ranks(), with_.least_ranks);
        return all <= enough + enough / 2 ? all : enough + (all - enough) % with_.counts.back();
    }
    void offer(const periodic_pattern& pattern, const completion_options& how) {
        auto completed = complete_pattern(reduced_, pattern, how, abandon());
        if (!completed) return;
        const auto value = objective_of(reduced_, *completed) + static_cast<double>(missing()) * pattern.period;
        if (!(value < best_value_ - state_.slack())) return;
        best_value_ = value;
        best_ = *std::move(completed);
        if (!(value < state_.target())) return;
        if (!is_reduced())
            state_.offer(best_, name);
        else if (const auto full = complete_pattern(p_, pattern, how, abandon()))
            state_.offer(*full, name);
    }
    /// The objective with the segment repeated a few times, extrapolated to all missing microbatches.
    [[nodiscard]] duration value_of(const per_rank<std::vector<timed_operation>>& lanes,
                                    const repeated_segment& segment) const {
        const auto value = [&](std::size_t times) {
            const auto some = with_microbatches(p_, reduced_.graph.microbatches() + times * segment.count);
            const auto timed = time_order(some, unroll(some, lanes, segment, times), abandon());
            return timed ? objective_of(some, *timed) : duration::unlimited();
        };
        const auto few = value(with_.few_repetitions);
        if (abandon()()) return duration::unlimited();
        const auto more = value(with_.more_repetitions);
        if (few.is_unlimited() || more.is_unlimited()) return duration::unlimited();
        const auto known = with_.few_repetitions * segment.count;
        const auto between = with_.more_repetitions * segment.count - known;
        const auto rate = (more - few) / static_cast<double>(between);
        return few + (static_cast<double>(missing()) - static_cast<double>(known)) * rate;
    }

    search_state& state_;
    const problem& p_;
    steady_state_parameters with_;
    problem reduced_;
    duration best_value_ = duration::unlimited();
    schedule best_{};
};

} // namespace optpipe::detail
