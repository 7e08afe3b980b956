#pragma once

#include "optpipe/core/outcome.hpp"
#include "optpipe/core/random.hpp"
#include "optpipe/core/stop_check.hpp"
#include "optpipe/pipeline/problem.hpp"
#include "optpipe/schedule/construct/interleave.hpp"
#include "optpipe/schedule/dispatch/dispatch_search.hpp"
#include "optpipe/schedule/dispatch/lane_timing.hpp"
#include "optpipe/schedule/rules/dependencies.hpp"
#include "optpipe/schedule/schedule.hpp"
#include "optpipe/schedule/time/measure.hpp"
#include "optpipe/schedule/time/simulate.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace optpipe {

/// The conditions under which `lane_search` ends. Not tuned.
struct lane_search_parameters {
    /// `lane_search` ends after this number of failures since the last improvement.
    std::size_t most_failures = 1000;
    /// To leave local optima, one in `kept_of_harmless` swaps is kept if it worsens the order but not the objective.
    std::size_t kept_of_harmless = 16;
};

/// Local search over the order of the compute operations on each rank. Two neighbours are swapped if the second is
/// ready before the first ends. A swap is kept unless the order gets worse. `Complete` turns lanes into a schedule with
/// the earliest times, or refuses, as `lane_timer` does. `Complete` may add operations that the lanes lack, such as
/// weight gradients. The schedule has no transfers.
template <pipeline_graph Graph, class Complete> class lane_search {
public:
    constexpr lane_search(const basic_problem<Graph>& p, Complete complete, best_order<Graph>& best, std::uint64_t seed,
                          stop_check stop = {})
        : p_{p}, complete_{std::move(complete)}, best_{best}, random_{seed}, stop_{stop}, number_{p.graph},
          ends_(number_.size(), duration::unlimited()) {}

    /// Offers every improvement to `best`. Ends when stopped, after `effort` placed operations, or after many failures.
    /// Returns the number of operations placed.
    constexpr std::size_t run(compute_lanes lanes, std::size_t effort) {
        constexpr lane_search_parameters with;
        spent_ = 0;
        auto current = evaluate(lanes);
        auto least = current;
        for (std::size_t failures = 0;
             failures < with.most_failures && spent_ < effort && !exchanges_.empty() && !stop_(); ++failures) {
            const auto [r, i] = exchanges_[random_.below(exchanges_.size())];
            auto kept = exchanges_;
            std::swap(lanes[r][i], lanes[r][i + 1]);
            const auto next = evaluate(lanes);
            const bool harmless = next.objective <= current.objective && random_.below(with.kept_of_harmless) == 0;
            if (next.objective.is_unlimited() || (next > current && !harmless)) {
                std::swap(lanes[r][i], lanes[r][i + 1]);
                exchanges_ = std::move(kept);
                continue;
            }
            current = next;
            if (next < least) {
                least = next;
                failures = 0;
            }
        }
        return spent_;
    }

private:
    struct worth {
        duration objective = duration::unlimited();
        /// The sum of the times that the ranks are engaged. A smaller sum leaves room for further swaps.
        duration engaged{};
        friend constexpr auto operator<=>(const worth&, const worth&) = default;
    };
    struct place {
        rank on{};
        std::size_t position = 0;
    };

    constexpr worth evaluate(const compute_lanes& lanes) {
        const auto completed = complete_(lanes);
        spent_ += number_.size() / 2;
        if (!completed) return {};
        find_exchanges(**completed, lanes);
        const auto result = worth_of(**completed);
        if (result.objective < best_.value()) best_.offer(listed_order(**completed));
        return result;
    }
    constexpr worth worth_of(const basic_schedule<Graph>& timed) {
        if (p_.objective == objective_kind::makespan) return {objective_of(p_, timed), engaged(timed)};
        late_ = timed;
        postpone_warm_up(p_, late_);
        return {objective_of(p_, late_), engaged(late_)};
    }
    constexpr duration engaged(const basic_schedule<Graph>& s) const {
        per_rank<duration, Graph::rank_extent> begin(p_.graph.ranks(), duration::unlimited());
        per_rank<duration, Graph::rank_extent> end(p_.graph.ranks());
        for (const auto& one : s.operations) {
            const rank on = p_.rank_of(one.op.stage);
            begin[on] = std::min(begin[on], one.start);
            end[on] = std::max(end[on], one.end);
        }
        duration sum{};
        for (const rank on : p_.graph.all_ranks())
            sum += end[on] - begin[on];
        return sum;
    }
    constexpr void find_exchanges(const basic_schedule<Graph>& s, const compute_lanes& lanes) {
        exchanges_.clear();
        for (const auto& one : s.operations)
            ends_[number_(one.op)] = one.end;
        const auto end_of = [&](const operation& op) { return ends_[number_(op)]; };
        for (const rank r : p_.graph.all_ranks())
            for (std::size_t i = 0; i + 1 < lanes[r].size(); ++i) {
                const auto& first = lanes[r][i];
                const auto& second = lanes[r][i + 1];
                const bool in_sequence =
                    first.stage == second.stage && (first.kind == second.kind || first.microbatch == second.microbatch);
                if (!in_sequence && input_time(p_, second, end_of) < end_of(first)) exchanges_.push_back({r, i});
            }
    }
    const basic_problem<Graph>& p_;
    Complete complete_;
    best_order<Graph>& best_;
    random_numbers random_;
    stop_check stop_;
    operation_numbering<Graph> number_;
    /// The ends in the last schedule; unlimited for operations that no schedule has. All schedules have the same
    /// operations.
    std::vector<duration> ends_;
    basic_schedule<Graph> late_{};
    std::vector<place> exchanges_{};
    std::size_t spent_ = 0;
};

} // namespace optpipe
