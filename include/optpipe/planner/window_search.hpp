#pragma once

#include "optpipe/core/random.hpp"
#include "optpipe/pipeline/problem.hpp"
#include "optpipe/planner/board.hpp"
#include "optpipe/planner/exact/reoptimize.hpp"
#include "optpipe/planner/windows/neighbourhood.hpp"
#include "optpipe/planner/windows/window.hpp"
#include "optpipe/planner/windows/window_choice.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

namespace optpipe {

struct window_options {
    std::uint64_t seed = 1;
    /// How many windows are tried at most. Where this ends the search and nobody else offers, the result follows from
    /// problem, start and seed.
    std::size_t windows = std::numeric_limits<std::size_t>::max();
};

namespace detail {

/// Works on one board, window by window.
class window_searcher {
public:
    window_searcher(search_board& board, const window_options& options)
        : board_{board}, p_{board.to_solve()}, options_{options}, random_{options.seed},
          choice_{std::any_of(p_.costs.begin(), p_.costs.end(), [](const stage_costs& c) { return c.can_offload(); }),
                  static_cast<double>(std::min<std::size_t>(3 * p_.graph.stages() * p_.graph.microbatches(), 400))} {}

    void run() {
        for (std::size_t i = 0; i < options_.windows && !board_.done(); ++i) {
            const auto best = board_.incumbent();
            if (!best) return;
            if (best != current_) adopt(best);
            attempt();
        }
    }

private:
    void adopt(std::shared_ptr<const schedule> best) {
        current_ = std::move(best);
        map_.emplace(p_, *current_);
        find_gaps();
    }
    /// Where ranks wait between their first and their last operation: what isn't idle can't be won.
    void find_gaps() {
        gaps_.clear();
        const auto lanes = operations_by_rank(p_, *current_);
        for (const rank r : p_.graph.all_ranks()) {
            auto lane = lanes[r];
            std::erase_if(lane, [](const timed_operation& t) { return is_transfer(t.op.kind); });
            std::sort(lane.begin(), lane.end(), starts_before);
            for (std::size_t i = 0; i + 1 < lane.size(); ++i)
                if (lane[i + 1].start > lane[i].end + board_.slack()) gaps_.push_back({lane[i].end, r.position()});
        }
    }
    [[nodiscard]] window_center center() {
        if (!gaps_.empty()) return gaps_[random_.below(gaps_.size())];
        return {random_share() * map_->end(), random_.below(p_.graph.ranks())};
    }
    [[nodiscard]] double random_share() {
        return static_cast<double>(random_.below(1U << 20U)) / static_cast<double>(1U << 20U);
    }

    void attempt() {
        const auto how = choice_.draw(random_);
        const auto w = draw_window(p_, *map_, how, choice_.size(how), center(), random_);
        const auto before = objective_of(p_, *current_);
        constexpr std::size_t most_conflicts = 400;
        const auto found = exact::reoptimize(
            p_, *current_, [&](const operation& op) { return map_->contains(w, op); }, before - 2.0 * board_.slack(),
            {.conflicts = most_conflicts, .seed = random_.next(), .stop = [&] { return board_.done(); }});
        double gain = 0.0;
        if (found.better) gain = std::max(0.0, (before - board_.offer(*found.better, "windows")) / before);
        // What a conflict costs goes with the tasks; the rest is one pass through the problem.
        const auto cost = static_cast<double>((found.conflicts + 10) * (found.tasks + 10)) +
                          static_cast<double>(current_->operations.size());
        choice_.learn(how, gain, cost, found.settled);
    }

    search_board& board_;
    const problem& p_;
    window_options options_;
    random_numbers random_;
    window_choice choice_;
    std::shared_ptr<const schedule> current_;
    std::optional<window_map> map_;
    std::vector<window_center> gaps_;
};

} // namespace detail

/// Improves the best schedule on the board in parts: a window of it is planned anew by the exact search with everything
/// else in its order; then the next one. Windows lie around the gaps in which ranks wait, are drawn from several
/// neighbourhoods, more often from those that win most for what they cost, and grow as long as they can be searched to
/// the end.
///
/// Single-threaded. Does nothing without a schedule to start from.
inline void window_search(search_board& board, const window_options& options = {}) {
    detail::window_searcher{board, options}.run();
}

} // namespace optpipe
