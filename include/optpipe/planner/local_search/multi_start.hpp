#pragma once

#include "optpipe/core/deadline.hpp"
#include "optpipe/core/quantity.hpp"
#include "optpipe/parallel/workers.hpp"
#include "optpipe/planner/local_search/local_search.hpp"
#include "optpipe/planner/local_search/parameters.hpp"
#include "optpipe/planner/portfolio/run_log.hpp"
#include "optpipe/planner/portfolio/search_state.hpp"
#include "optpipe/schedule/schedule.hpp"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <mutex>
#include <string_view>
#include <utility>
#include <vector>

namespace optpipe {

/// A schedule from which a search may start.
struct search_start {
    schedule made{};
    duration objective{};
};

struct multi_start_options {
    std::uint64_t seed = 1;
    std::size_t threads = 1;
    /// Whether to plan the same work as without a deadline. If true, the result depends on the clock only if the
    /// deadline ends the search.
    bool deterministic = false;
    multi_start_parameters with{};
};

namespace detail {

/// A search from several starts (see `multi_start_search`).
class successive_halving {
public:
    successive_halving(search_state& state, std::vector<search_start> starts, const multi_start_options& options)
        : state_{state}, starts_{std::move(starts)}, options_{options}, limits_{state.limits()} {
        const auto cells = state.problem().graph.cells();
        const auto first_round = annealing_parameters{}.first_round_of(cells);
        moves_ = static_cast<std::size_t>(options.with.first_round * first_round);
        const bool has_deadline = limits_.deadline != std::chrono::steady_clock::time_point::max();
        if (options.deterministic || !has_deadline)
            keep_first(options.with.most_work / static_cast<double>(moves_ * cells));
        else
            limit_time(options.with.time * state.seconds_left());
    }

    /// Runs the searches, and offers their results under `name`.
    void run(std::string_view name) {
        for (bool first = true; starts_.size() > 1 && !is_over(); first = false, moves_ *= 2) {
            search_all(first);
            std::stable_sort(starts_.begin(), starts_.end(),
                             [](const search_start& a, const search_start& b) { return a.objective < b.objective; });
            state_.offer_timed(starts_.front().made, name);
            starts_.resize(starts_.size() > 2 ? (starts_.size() + 1) / 2 : 0);
        }
    }

private:
    [[nodiscard]] bool is_over() const { return state_.done() || std::chrono::steady_clock::now() >= limits_.deadline; }
    void limit_time(double seconds) {
        seconds_ = std::max(0.0, seconds);
        limits_.deadline = deadline_after(std::chrono::steady_clock::now(), std::chrono::duration<double>{seconds_});
    }
    /// Drops the last starts until all rounds take no longer than `searches` searches of the first round. Each round
    /// takes as long as the first round.
    void keep_first(double searches) {
        const auto most = std::clamp(searches / rounds, 0.0, static_cast<double>(starts_.size()));
        starts_.resize(static_cast<std::size_t>(most));
    }
    /// Searches from all starts. The first round only searches from as many starts as the time allows.
    void search_all(bool first) {
        std::vector<search_start> found(starts_.size());
        std::mutex mutex;
        double longest = 0.0;
        const auto one = [&](std::size_t k) {
            {
                const std::scoped_lock lock{mutex};
                const auto searches = static_cast<double>(options_.threads) * seconds_ / (rounds * longest);
                if (first && static_cast<double>(k) >= searches) return;
            }
            const stopwatch watch;
            found[k] = searched(k);
            const std::scoped_lock lock{mutex};
            longest = std::max(longest, watch.seconds());
        };
        parallel::workers{starts_.size(), one}.run(options_.threads);
        std::erase_if(found, [](const search_start& each) { return each.made.operations.empty(); });
        starts_ = std::move(found);
    }
    /// Searches in a separate state: the result doesn't depend on other searches.
    [[nodiscard]] search_start searched(std::size_t k) const {
        search_state own{state_.problem(), limits_};
        own.offer_timed(starts_[k].made, "start");
        own.raise_bound(state_.bound(), "bound");
        local_search(own, {.seed = options_.seed + k, .moves = moves_});
        const auto best = own.incumbent(); // null if the search was abandoned without a schedule
        return best ? search_start{*best, own.objective()} : starts_[k];
    }

    /// Number of rounds from eight starts down to two.
    static constexpr double rounds = 3.0;

    search_state& state_;
    std::vector<search_start> starts_;
    multi_start_options options_;
    search_limits limits_;
    double seconds_ = std::numeric_limits<double>::infinity();
    std::size_t moves_ = 0;
};

} // namespace detail

/// Local search from each of several schedules, the most promising first. The first round searches for the same time
/// from each start. Each further round searches for twice as long from the better half of the starts, down to two
/// starts (successive halving; Jamieson and Talwalkar 2016). Offers the best schedule after each round. The number of
/// starts is limited by a share of the remaining time. Without a deadline, the work limits the number of starts. The
/// result then depends only on the starts and the seed.
///
/// Runs on the threads of the caller's arena.
inline void multi_start_search(search_state& state, std::vector<search_start> starts, std::string_view name,
                               const multi_start_options& options = {}) {
    detail::successive_halving{state, std::move(starts), options}.run(name);
}

} // namespace optpipe
