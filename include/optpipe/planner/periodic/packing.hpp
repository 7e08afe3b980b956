#pragma once

#include "optpipe/core/container.hpp"
#include "optpipe/pipeline/problem.hpp"
#include "optpipe/planner/periodic/circle.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <vector>

namespace optpipe::detail {

/// Whether what a rank still has to do in a period fits between what it does already: every gap is filled as well as
/// the lengths allow, each by itself, and what stays empty may not be more than the rank has to spare.
class modulo_packing {
public:
    modulo_packing(const problem& p, double period, std::size_t cycle, double slack)
        : p_{p}, slack_{slack}, spare_(p.graph.ranks(), static_cast<double>(cycle) * period),
          remaining_(p.graph.stages()) {
        const auto split = p.split_backward;
        per_rank<std::vector<double>> sums(p.graph.ranks(), std::vector<double>{0.0});
        for (const stage s : p.graph.all_stages()) {
            const auto& c = p.costs[s];
            auto& own = sums[p.rank_of(s)];
            remaining_[s] = own;
            for (std::size_t j = 0; j < cycle; ++j) {
                extend(own, c.forward.value());
                extend(own, (split ? c.backward_input : c.backward()).value());
                if (split) extend(own, c.backward_weight.value());
            }
            spare_[p.rank_of(s)] -= static_cast<double>(cycle) * c.work().value();
        }
    }

    [[nodiscard]] bool possible() const {
        return std::all_of(spare_.begin(), spare_.end(), [&](double spare) { return spare >= -slack_; });
    }
    /// With all stages from `s` on placed.
    [[nodiscard]] bool fits(stage s, const circle& lane) const {
        const auto& sums = remaining_[s];
        if (sums.empty()) return true;
        double wasted = 0.0;
        const auto gaps = lane.gaps();
        for (const auto gap : gaps) {
            const auto above = std::upper_bound(sums.begin(), sums.end(), gap + slack_);
            wasted += std::max(0.0, gap - *(above - 1));
        }
        return wasted <= spare_[p_.rank_of(s)] + slack_ * static_cast<double>(4 + gaps.size());
    }

private:
    /// All that sums may come to; none where that is more than is worth knowing.
    void extend(std::vector<double>& sums, double length) const {
        constexpr std::size_t most = 512;
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
    /// Of the stages before on the same rank: what their operations may add up to.
    per_stage<std::vector<double>> remaining_;
};

} // namespace optpipe::detail
