#pragma once

#include "optpipe/core/random.hpp"
#include "optpipe/pipeline/problem.hpp"
#include "optpipe/planner/cp/reoptimize.hpp"
#include "optpipe/planner/lns/neighbourhood.hpp"
#include "optpipe/planner/lns/neighbourhood_selector.hpp"
#include "optpipe/planner/lns/parameters.hpp"
#include "optpipe/planner/lns/window.hpp"
#include "optpipe/planner/portfolio/search_state.hpp"
#include "optpipe/schedule/bounds/storage_relaxation.hpp"

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
    /// Limit of the number of windows that are tried. If this limit ends the search and no other strategy offers
    /// anything, problem, start and seed determine the result.
    std::size_t windows = std::numeric_limits<std::size_t>::max();
    window_parameters with{};
};

namespace detail {

/// One run, window by window.
class lns_run {
public:
    lns_run(search_state& state, const window_options& options)
        : state_{state}, p_{state.problem()}, options_{options}, random_{options.seed},
          selector_{offloads_anything(p_), p_.has_storage_options(), static_cast<double>(most_computations()),
                    options.with} {}

    void run() {
        for (std::size_t i = 0; i < options_.windows && !state_.done(); ++i) {
            const auto best = state_.incumbent();
            if (!best) return;
            if (best != current_) adopt(best);
            attempt();
        }
    }

private:
    [[nodiscard]] std::size_t most_computations() const {
        return std::min(computations_each * p_.graph.cells(), options_.with.most_size);
    }
    void adopt(std::shared_ptr<const schedule> best) {
        current_ = std::move(best);
        map_.emplace(p_, *current_);
        find_gaps();
        find_used_options();
    }
    void find_used_options() {
        if (!p_.has_storage_options()) return;
        used_options_.assign(p_.graph.stages(), {});
        for (const auto& timed : current_->operations)
            if (timed.op.kind == operation_kind::forward)
                used_options_[timed.op.stage.position()].push_back(timed.op.storage);
    }
    /// The storage options that stashes may change to: some that are in use on their stage, and some from its list.
    /// Stages with equal lists get the same ones.
    [[nodiscard]] cp::storage_candidates draw_candidates() {
        struct draw {
            bool is_used;
            std::uint64_t number;
        };
        std::vector<draw> drawn;
        for (std::size_t i = 0; i < options_.with.storage_candidates; ++i)
            drawn.push_back({random_.chance(options_.with.used_candidate_chance), random_.next()});
        cp::storage_candidates result(p_.graph.stages());
        for (const stage s : p_.graph.all_stages()) {
            if (p_.is_plain(s)) continue;
            const auto& used = used_options_[s.position()];
            auto& own = result[s.position()];
            for (const auto& [is_used, number] : drawn)
                own.push_back(is_used ? used[number % used.size()]
                                      : static_cast<storage_index>(number % p_.storage[s].size()));
            std::sort(own.begin(), own.end());
            own.erase(std::unique(own.begin(), own.end()), own.end());
        }
        return result;
    }
    /// Finds the gaps between the first and the last operation of each rank: only idle time can be saved.
    void find_gaps() {
        gaps_.clear();
        const auto lanes = split_by_rank(p_.graph, current_->operations);
        for (const rank r : p_.graph.all_ranks()) {
            auto lane = lanes[r];
            std::erase_if(lane, [](const timed_operation& t) { return is_transfer(t.op.kind); });
            std::sort(lane.begin(), lane.end(), starts_before);
            for (std::size_t i = 0; i + 1 < lane.size(); ++i)
                if (lane[i + 1].start > lane[i].end + state_.slack()) gaps_.push_back({lane[i].end, r.position()});
        }
    }
    [[nodiscard]] window_center center() {
        if (!gaps_.empty()) return gaps_[random_.below(gaps_.size())];
        return {random_share(random_) * map_->end(), random_.below(p_.graph.ranks())};
    }

    void attempt() {
        const auto how = selector_.select(random_);
        const auto w = draw_window(p_, *map_, how, selector_.size(how), center(), options_.with, random_);
        const auto before = objective_of(p_, *current_);
        const auto found = cp::reoptimize(
            p_, *current_, [&](const operation& op) { return map_->contains(w, op); }, before - 2.0 * state_.slack(),
            {.conflicts = options_.with.conflicts,
             .seed = random_.next(),
             .stop = [&] { return state_.done(); },
             .candidates = w.opens_storage ? draw_candidates() : cp::storage_candidates{}});
        double gain = 0.0;
        if (found.better) gain = std::max(0.0, (before - state_.offer(*found.better, "windows")) / before);
        // The cost of a conflict grows with the tasks; the rest is one pass through the problem.
        const auto least = options_.with.least_cost;
        const auto cost = static_cast<double>((found.conflicts + least) * (found.tasks + least)) +
                          static_cast<double>(current_->operations.size());
        selector_.update(how, gain, cost, found.settled);
    }

    search_state& state_;
    const problem& p_;
    window_options options_;
    random_numbers random_;
    neighbourhood_selector selector_;
    std::shared_ptr<const schedule> current_;
    std::optional<window_map> map_;
    std::vector<window_center> gaps_;
    /// Options per stage and microbatch, if stages list storage options.
    std::vector<std::vector<storage_index>> used_options_;
};

} // namespace detail

/// Large neighbourhood search: improves the incumbent window by window. The CP search reoptimizes a window while all
/// other operations keep their order. Windows lie around idle gaps and grow as long as they are searched completely.
/// They are drawn from several neighbourhoods, more often from those with the highest gain per cost. If stages list
/// storage options, some windows may change those of their stashes.
///
/// Single-threaded. Does nothing without a schedule to start from.
inline void window_search(search_state& state, const window_options& options = {}) {
    detail::lns_run{state, options}.run();
}

} // namespace optpipe
