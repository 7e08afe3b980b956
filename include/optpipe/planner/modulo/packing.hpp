#pragma once

#include "optpipe/core/container.hpp"
#include "optpipe/pipeline/problem.hpp"
#include "optpipe/planner/modulo/modulo_timeline.hpp"
#include "optpipe/planner/modulo/parameters.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <vector>

namespace optpipe::detail {

/// Checks a necessary condition: the remaining operations of a rank must fit into the gaps of its period. Each gap is
/// filled separately, as well as the lengths of operations allow. The time that remains unfilled in all gaps together
/// must be at most the rank's idle time.
class modulo_packing {
public:
    modulo_packing(const problem& p, double period, std::size_t periodicity, double slack)
        : p_{p}, slack_{slack}, spare_(p.graph.ranks(), static_cast<double>(periodicity) * period),
          remaining_(p.graph.stages()) {
        const auto split = p.split_backward;
        per_rank<std::vector<double>> sums(p.graph.ranks(), std::vector<double>{0.0});
        for (const stage s : p.graph.all_stages()) {
            const auto& c = p.costs[s];
            auto& own = sums[p.rank_of(s)];
            if (may_take_longer(s)) own.clear();
            remaining_[s] = own;
            for (std::size_t j = 0; j < periodicity; ++j) {
                extend(own, c.forward.value());
                extend(own, (split ? c.backward_input : c.backward()).value());
                if (split) extend(own, c.backward_weight.value());
            }
            spare_[p.rank_of(s)] -= static_cast<double>(periodicity) * c.work().value();
        }
    }

    [[nodiscard]] bool possible() const {
        return std::all_of(spare_.begin(), spare_.end(), [&](double spare) { return spare >= -slack_; });
    }
    /// The idle time of a rank in one repetition of the pattern, without recomputation.
    [[nodiscard]] double spare(rank r) const { return spare_[r]; }
    /// Whether the operations of the rank's earlier stages may still fit in the gaps of `lane`. `lane` has the
    /// operations of stage `s` and of the rank's later stages.
    [[nodiscard]] bool fits(stage s, const modulo_timeline& lane) const {
        const auto& sums = remaining_[s];
        if (sums.empty()) return true;
        constexpr std::size_t borders = 4; // rounding errors: one at each end of a sum and of the spare time
        double wasted = 0.0;
        const auto gaps = lane.gaps();
        for (const auto gap : gaps) {
            const auto above = std::upper_bound(sums.begin(), sums.end(), gap + slack_);
            wasted += std::max(0.0, gap - *(above - 1));
        }
        return wasted <= spare_[p_.rank_of(s)] + slack_ * static_cast<double>(borders + gaps.size());
    }

private:
    /// Whether the stage has storage options that recompute. If so, the lengths of the stage's operations are unknown.
    [[nodiscard]] bool may_take_longer(stage s) const {
        for (std::size_t i = 0; i < p_.storage_options(s); ++i)
            if (p_.storage_of(s, i).extra_work() > duration{}) return true;
        return false;
    }
    /// Extends the subset sums by an operation of this length. Clears `sums` if there are too many.
    void extend(std::vector<double>& sums, double length) const {
        constexpr auto most = beam_parameters{}.most_sums;
        if (sums.empty()) return;
        const auto count = sums.size();
        for (std::size_t i = 0; i < count; ++i)
            sums.push_back(sums[i] + length);
        std::inplace_merge(sums.begin(), sums.begin() + static_cast<std::ptrdiff_t>(count), sums.end());
        sums.erase(std::unique(sums.begin(), sums.end(), [&](double a, double b) { return std::abs(a - b) <= slack_; }),
                   sums.end());
        if (sums.size() > most) sums.clear();
    }

    const problem& p_;
    double slack_;
    per_rank<double> spare_;
    /// Subset sums of the operations of earlier stages on the same rank.
    per_stage<std::vector<double>> remaining_;
};

} // namespace optpipe::detail
