#pragma once

#include "optpipe/core/random.hpp"
#include "optpipe/core/stop_check.hpp"
#include "optpipe/pipeline/problem.hpp"
#include "optpipe/planner/order_search/order_search.hpp"
#include "optpipe/planner/pair_search/pair_starts.hpp"
#include "optpipe/planner/portfolio/search_state.hpp"
#include "optpipe/schedule/time/evaluate.hpp"
#include "optpipe/schedule/time/measure.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

namespace optpipe {

/// The parameters of `pair_search`, which are the same for every problem. Not tuned.
struct pair_search_parameters {
    std::uint64_t seed = 1;
    /// Number of orders that are tried. Half of the orders are tried in the first round.
    std::size_t moves = 2'000'000;
    /// The least number of moves in a round. While more than 2 · `moves_of_round` moves remain, a round has half of the
    /// remaining moves.
    std::size_t moves_of_round = 150'000;
    /// A round begins at a log-uniformly random temperature between the first two values. Every round ends at
    /// `last_temperature`. All temperatures are shares of the objective.
    double least_first_temperature = 3e-4;
    double most_first_temperature = 3e-3;
    double last_temperature = 1e-5;
    /// Number of starts that are kept.
    std::size_t starts = 6;
};

namespace detail {

/// The data that all calls of `pair_search` on one problem share.
struct pair_search_state {
    std::mutex mutex{};
    std::unique_ptr<const problem_without_offloads> without{};
    std::vector<pair_start> starts{};
    /// Whether the last start is an incumbent.
    bool has_incumbent = false;
    std::size_t tried = 0;
};

class pair_searcher {
public:
    pair_searcher(search_state& state, const pair_search_parameters& with, std::string_view name)
        : state_{&state}, with_{with}, name_{name}, random_{with.seed}, shared_{state.shared<pair_search_state>()} {}

    void run() {
        make_starts();
        if (!shared_->without->can_do_without()) return;
        auto left = with_.moves;
        while (left > 0 && !state_->done()) {
            const auto moves = std::min(left, std::max(left / 2, with_.moves_of_round));
            const auto start = choose();
            if (!start) return;
            improve(*start, moves);
            left -= moves;
        }
    }

private:
    void make_starts() {
        const std::scoped_lock lock{shared_->mutex};
        if (shared_->without) return;
        shared_->without = std::make_unique<const problem_without_offloads>(state_->problem());
        if (!shared_->without->can_do_without()) return;
        shared_->starts = pair_start_maker{shared_->without->reduced(), state_->limits().most_distinct_pairs}.make(
            stop_check{*state_});
        if (shared_->starts.size() > with_.starts) shared_->starts.resize(with_.starts);
    }
    /// Makes the incumbent a start if it is better than all schedules found from the starts. The new start replaces an
    /// earlier start that was an incumbent. Contract: the mutex is held.
    void start_from_incumbent() {
        auto& starts = shared_->starts;
        const double target = state_->objective().value() + state_->slack().value();
        const auto is_as_good = [&](const pair_start& s) { return !s.best.operations.empty() && s.value <= target; };
        if (std::any_of(starts.begin(), starts.end(), is_as_good)) return;
        const auto found = state_->incumbent();
        if (!found) return;
        const auto reduced = shared_->without->reduced(order_of(*found));
        auto timed = reduced ? time_order(shared_->without->reduced(), *reduced) : outcome<schedule>{refusal{}};
        if (!timed) return;
        if (!std::exchange(shared_->has_incumbent, true)) starts.emplace_back();
        starts.back() = {*timed, objective_of(shared_->without->reduced(), *timed).value(), *timed};
    }
    /// Chooses each start once. Later, chooses the best start with probability 1/2, the next start with probability
    /// 1/4, and so on.
    std::optional<std::size_t> choose() {
        constexpr std::size_t half = 50; // percent
        const std::scoped_lock lock{shared_->mutex};
        start_from_incumbent();
        if (shared_->tried < shared_->starts.size()) return shared_->tried++;
        if (shared_->starts.empty()) return std::nullopt;
        std::vector<std::size_t> sorted(shared_->starts.size());
        for (std::size_t i = 0; i < sorted.size(); ++i)
            sorted[i] = i;
        std::stable_sort(sorted.begin(), sorted.end(), [&](std::size_t a, std::size_t b) {
            return shared_->starts[a].value < shared_->starts[b].value;
        });
        std::size_t i = 0;
        while (i + 1 < sorted.size() && random_.chance(half))
            ++i;
        return sorted[i];
    }
    double first_temperature() {
        const double ratio = with_.most_first_temperature / with_.least_first_temperature;
        return with_.least_first_temperature * std::pow(ratio, random_.share());
    }
    /// Runs one round from a start, or from the best schedule found from this start.
    void improve(std::size_t which, std::size_t moves) {
        constexpr std::size_t from_best = 75; // percent
        schedule start;
        {
            const std::scoped_lock lock{shared_->mutex};
            const auto& chosen = shared_->starts[which];
            const bool again = !chosen.best.operations.empty() && random_.chance(from_best);
            start = again ? chosen.best : chosen.made;
        }
        search_state own{shared_->without->reduced(), state_->limits()};
        order_search_parameters with;
        with.seed = random_.next();
        with.moves = moves;
        with.first_temperature = first_temperature();
        with.last_temperature = with_.last_temperature;
        with.most_distinct_pairs = state_->limits().most_distinct_pairs;
        order_annealer{own, with, name_}.run_from(start, stop_check{*state_});
        const auto found = own.incumbent();
        if (!found) return;
        const double value = own.objective().value();
        if (own.objective() < state_->target()) state_->offer(shared_->without->original(order_of(*found)), name_);
        const std::scoped_lock lock{shared_->mutex};
        auto& chosen = shared_->starts[which];
        if (!chosen.best.operations.empty() && value >= chosen.value) return; // `best` is at least as good
        chosen.value = value;
        chosen.best = *found;
    }

    search_state* state_;
    pair_search_parameters with_;
    std::string_view name_;
    random_numbers random_;
    std::shared_ptr<pair_search_state> shared_;
};

} // namespace detail

/// Simulated annealing of orders with pairs, for problems with pairs. The search starts from the incumbent, and from
/// published schedules planned without memory limits. Memory above the limits has a price, which grows during a round.
/// No stash is offloaded. All calls on one problem share the starts and the best schedules found from them.
inline void pair_search(search_state& state, const pair_search_parameters& with, std::string_view name) {
    detail::pair_searcher{state, with, name}.run();
}

} // namespace optpipe
