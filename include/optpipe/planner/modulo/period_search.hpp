#pragma once

#include "optpipe/core/random.hpp"
#include "optpipe/core/stop_check.hpp"
#include "optpipe/pipeline/problem.hpp"
#include "optpipe/planner/modulo/beam_search.hpp"
#include "optpipe/planner/modulo/parameters.hpp"
#include "optpipe/planner/modulo/pattern.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <utility>
#include <vector>

namespace optpipe::detail {

/// Searches for patterns with ever shorter periods. The periodicity of a pattern is one to a few microbatches. Periods
/// increase from the load bound until a pattern is found. The search then bisects between the longest period without a
/// pattern and the shortest period with a pattern. In each round, the beam gets wider, or has more attempts.
///
/// Every pattern found is passed to `take`. `stop` is polled between stages.
class period_search {
public:
    period_search(const problem& p, std::uint64_t seed, std::size_t effort,
                  std::function<void(const periodic_pattern&)> take, stop_check stop,
                  const period_parameters& with = {})
        : p_{p}, with_{with}, random_{seed}, effort_{effort}, take_{std::move(take)}, stop_{stop},
          load_{p.busiest_work()} {
        const auto most = std::min(with_.max_periodicity, p.graph.microbatches());
        for (std::size_t periodicity = 1; periodicity <= most; ++periodicity)
            for (const bool eager : {false, true})
                if (!eager || offloads_anything(p)) tracks_.push_back({periodicity, eager});
    }

    void run() {
        for (std::size_t round = 0; round < with_.max_rounds && !exhausted(); ++round)
            for (auto& one : tracks_)
                if (!exhausted()) advance(one, round);
    }
    /// The shortest period found until now. Unlimited if no pattern has been found.
    [[nodiscard]] duration best() const {
        auto shortest = duration::unlimited();
        for (const auto& one : tracks_)
            shortest = std::min(shortest, one.best);
        return shortest;
    }

private:
    struct track {
        std::size_t periodicity = 1;
        bool eager = false;
        duration best = duration::unlimited();
    };

    [[nodiscard]] bool exhausted() const { return spent_ >= effort_ || stop_(); }

    bool attempt(track& at, duration period, std::size_t round) {
        const bool coupled = at.periodicity == 1 && p_.graph.stages() > p_.graph.ranks();
        const std::size_t factor = coupled ? with_.coupled_factor : 1;
        const auto width = std::min(factor * with_.first_width << round / 2, with_.max_width);
        const auto attempts = std::min(factor * with_.first_attempts << (round + 1) / 2, with_.max_attempts);
        beam_search beam{p_, period, {at.periodicity, at.eager, width, attempts, random_.next()}};
        const stop_when exhausted{[&] { return spent_ + beam.work() >= effort_ || stop_(); }};
        const auto found = beam.run(exhausted);
        spent_ += beam.work() + p_.graph.stages();
        if (!found) return false;
        at.best = std::min(at.best, period);
        // Completing a pattern in several ways takes time, and also counts as effort.
        spent_ += with_.completion_effort * p_.graph.cells();
        take_(*found);
        return true;
    }
    void advance(track& at, std::size_t round) {
        if (at.best.is_unlimited()) {
            search_upward(at, round);
            return;
        }
        if (round > with_.least_rounds && at.best > with_.max_ratio * best()) return;
        for (const double share : with_.shares) {
            if (exhausted()) return;
            const auto previous = at.best;
            if (attempt(at, load_ + share * (at.best - load_), round) && at.best < previous) return;
            if (at.best <= load_) return;
        }
    }
    void search_upward(track& at, std::size_t round) {
        const double most = p_.serial_time() / load_ / static_cast<double>(p_.graph.microbatches()) + 1.0;
        double missed = 0.0;
        for (double above = 0.0; above < most && !exhausted(); above = above * with_.step_growth + with_.first_step) {
            if (attempt(at, (1.0 + above) * load_, round)) {
                bisect(at, (1.0 + missed) * load_, round);
                return;
            }
            missed = above;
        }
    }

    /// Bisects between a period without a pattern and the best period.
    void bisect(track& at, duration missed, std::size_t round) {
        for (std::size_t step = 0; step < with_.bisections && at.best > load_ && !exhausted(); ++step) {
            const auto middle = missed + 0.5 * (at.best - missed);
            if (!attempt(at, middle, round)) missed = middle;
        }
    }

    const problem& p_;
    period_parameters with_;
    random_numbers random_;
    std::size_t effort_;
    std::function<void(const periodic_pattern&)> take_;
    stop_check stop_;
    duration load_;
    std::vector<track> tracks_{};
    std::size_t spent_ = 0;
};

} // namespace optpipe::detail
