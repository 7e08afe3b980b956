#pragma once

#include "optpipe/pipeline/problem.hpp"
#include "optpipe/planner/board.hpp"
#include "optpipe/planner/periodic/ends.hpp"
#include "optpipe/planner/periodic/pattern.hpp"
#include "optpipe/planner/periodic/stretch.hpp"
#include "optpipe/schedule/evaluate.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <functional>
#include <memory>
#include <utility>

namespace optpipe::detail {

/// A step with many microbatches, and the same with as few as its ends need.
class long_run {
public:
    explicit long_run(search_board& board)
        : board_{board}, p_{board.to_solve()}, reduced_{with_microbatches(p_, enough_for(p_))} {}

    [[nodiscard]] const problem& reduced() const { return reduced_; }
    [[nodiscard]] bool is_reduced() const { return reduced_.graph.microbatches() < p_.graph.microbatches(); }

    /// Judges a pattern with several ends by the reduced step, and offers what promises to be the best.
    void offer(const periodic_pattern& pattern) {
        // Squeezed, a pattern may come to be a little faster than it says, but no more.
        constexpr double faster = 0.97;
        if (faster * static_cast<double>(p_.graph.microbatches()) * pattern.period > best_value_) return;
        const bool may_refill = can_refill(p_, pattern);
        for (const bool refill : {false, true})
            for (const double ahead : {0.0, 0.25, 0.5, 0.75, 1.0})
                if ((!refill || may_refill) && !board_.done()) offer(pattern, {ahead, refill});
    }
    /// Improves the ends of the best and stretches it, unless it is far behind what the board has.
    void finish(const std::function<void(search_board&)>& improve) {
        // In eight problems (8 and 32 ranks, unit costs) the ends had nothing to win; 5 % is more than they hold.
        constexpr double hopeless = 1.05;
        if (best_value_.is_unlimited() || !is_reduced() || best_value_ > hopeless * board_.objective()) return;
        stretch_to_all(best_);
        if (!improve || board_.done()) return;
        search_board inner{reduced_, board_.limits()};
        inner.offer(best_, name);
        improve(inner);
        if (inner.objective() < objective_of(reduced_, best_)) stretch_to_all(*inner.incumbent());
    }
    /// Offers a schedule of the reduced step with a piece of its middle repeated.
    void stretch_to_all(const schedule& shorter) {
        const auto lanes = lanes_by_start(reduced_, shorter);
        const recurrence_finder finder{reduced_, lanes};
        duration last{};
        for (const auto& timed : shorter.operations)
            last = std::max(last, timed.end);
        auto least = duration::unlimited();
        recurrence best;
        for (const auto count : counts)
            for (const double place : {0.35, 0.5, 0.65}) {
                if (missing() % count != 0 || board_.done()) continue;
                const auto piece = finder.find(place * last, count);
                if (!piece) continue;
                const auto value = value_of(lanes, *piece);
                if (!(value < least)) continue;
                least = value;
                best = *piece;
            }
        if (least < duration::unlimited()) board_.offer(stretch(p_, lanes, best, missing() / best.count), name);
    }

private:
    static constexpr std::string_view name = "periodic core";
    /// Pieces to repeat hold so many microbatches.
    static constexpr std::array<std::size_t, 6> counts{1, 2, 3, 4, 6, 12};

    [[nodiscard]] std::size_t missing() const { return p_.graph.microbatches() - reduced_.graph.microbatches(); }
    /// About as many as four pipelines hold, so that any of the counts may be repeated until there are all.
    [[nodiscard]] static std::size_t enough_for(const problem& p) {
        const auto all = p.graph.microbatches();
        const auto enough = 4 * std::max<std::size_t>(p.graph.ranks(), 4);
        return all <= enough + enough / 2 ? all : enough + (all - enough) % counts.back();
    }
    void offer(const periodic_pattern& pattern, const periodic_ends& ends) {
        auto completed = complete_pattern(reduced_, pattern, ends);
        if (!completed) return;
        const auto value = objective_of(reduced_, *completed) + static_cast<double>(missing()) * pattern.period;
        if (!(value < best_value_ - board_.slack())) return;
        best_value_ = value;
        best_ = *std::move(completed);
        if (!(value < board_.target())) return;
        if (!is_reduced())
            board_.offer(best_, name);
        else if (const auto whole = complete_pattern(p_, pattern, ends))
            board_.offer(*whole, name);
    }
    /// The objective with the piece repeated a few times more, for each microbatch that is missing besides.
    [[nodiscard]] duration value_of(const per_rank<std::vector<timed_operation>>& lanes,
                                    const recurrence& piece) const {
        const auto value = [&](std::size_t times) {
            const auto some = with_microbatches(p_, reduced_.graph.microbatches() + times * piece.count);
            const auto timed = time_order(some, stretch(some, lanes, piece, times));
            return timed ? objective_of(some, *timed) : duration::unlimited();
        };
        const auto few = value(2);
        const auto more = value(6);
        if (few.is_unlimited() || more.is_unlimited()) return duration::unlimited();
        const auto rate = (more - few) / (4.0 * static_cast<double>(piece.count));
        return few + (static_cast<double>(missing()) - 2.0 * static_cast<double>(piece.count)) * rate;
    }

    search_board& board_;
    const problem& p_;
    problem reduced_;
    duration best_value_ = duration::unlimited();
    schedule best_{};
};

} // namespace optpipe::detail
