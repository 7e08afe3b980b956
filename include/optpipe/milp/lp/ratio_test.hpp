#pragma once

#include "optpipe/milp/lp/parameters.hpp"
#include "optpipe/milp/lp/tableau.hpp"
#include "optpipe/milp/lp/work_vector.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <vector>

namespace optpipe::milp::lp {

/// The dual ratio test with bound flipping (the long-step rule). As in Harris (1973), breakpoints within the tolerance
/// form a group with a free choice of pivot.
class dual_ratio_test {
public:
    /// `side` is +1 if the leaving variable is above its bounds, and -1 if below. `violation` is the leaving variable's
    /// distance from its bounds, beyond the primal tolerance. Afterwards, `entering()` is the entering variable, or
    /// negative. `flipped()` lists the variables that must flip to their other bound.
    void run(const tableau& t, const work_vector& row, double side, double violation, double least_pivot,
             double tolerance) {
        collect(t, row, side, least_pivot);
        flipped_.clear();
        groups_.clear();
        entering_ = -1;
        tolerance_ = tolerance;
        slope_ = violation;
        std::size_t begin = 0;
        double theta = 0.0;
        while (begin < candidates_.size()) {
            // Each group reaches farther than the group before it.
            theta = std::max(parameters.coarsening * theta, harris_bound(begin, candidates_.size()));
            const auto end = part(begin, candidates_.size(), theta);
            const double gain = range_of(begin, end);
            if (gain > slope_) {
                refine(begin, end);
                choose();
                return;
            }
            slope_ -= gain;
            begin = end;
        }
    }
    [[nodiscard]] int entering() const { return entering_; }
    [[nodiscard]] const std::vector<int>& flipped() const { return flipped_; }

private:
    struct candidate {
        int variable;
        double reduced;
        double pivot;
        double range;
    };
    struct group {
        std::size_t begin;
        std::size_t end;
    };

    void collect(const tableau& t, const work_vector& row, double side, double least_pivot) {
        candidates_.resize(row.index.size());
        std::size_t found = 0;
        for (const int j : row.index) {
            const double alpha = side * row[j];
            const double d = t.reduced_cost[at(j)];
            // Pivot and reduced cost, with signs as for a variable at its lower bound.
            double pivot = 0.0;
            double reduced = 0.0;
            switch (t.status[at(j)]) {
            case basis_status::at_lower:
                pivot = alpha;
                reduced = d;
                break;
            case basis_status::at_upper:
                pivot = -alpha;
                reduced = -d;
                break;
            case basis_status::free_at_zero: pivot = std::abs(alpha); break;
            case basis_status::basic: break;
            }
            if (pivot > least_pivot)
                candidates_[found++] = {j, std::max(reduced, 0.0), pivot, t.upper[at(j)] - t.lower[at(j)]};
        }
        candidates_.resize(found);
    }
    [[nodiscard]] double harris_bound(std::size_t begin, std::size_t end) const {
        double least = std::numeric_limits<double>::infinity();
        for (auto k = begin; k < end; ++k)
            least = std::min(least, (candidates_[k].reduced + tolerance_) / candidates_[k].pivot);
        return least;
    }
    /// Moves the candidates with ratios up to theta to the front. Rounding could exclude all candidates, but at least
    /// one is moved. Returns the end of the moved candidates.
    std::size_t part(std::size_t begin, std::size_t end, double theta) {
        auto next = begin;
        for (auto k = begin; k < end; ++k)
            if (candidates_[k].reduced <= theta * candidates_[k].pivot) std::swap(candidates_[k], candidates_[next++]);
        return std::max(next, begin + 1);
    }
    [[nodiscard]] double range_of(std::size_t begin, std::size_t end) const {
        double sum = 0.0;
        for (auto k = begin; k < end; ++k)
            sum += candidates_[k].range * candidates_[k].pivot;
        return sum;
    }
    void refine(std::size_t begin, std::size_t end) {
        while (begin < end && slope_ >= 0.0) {
            const auto next = part(begin, end, harris_bound(begin, end));
            groups_.push_back({begin, next});
            slope_ -= range_of(begin, next);
            begin = next;
        }
    }
    [[nodiscard]] std::size_t largest_pivot(const group& g) const {
        auto best = g.begin;
        for (auto k = g.begin; k < g.end; ++k)
            if (candidates_[k].pivot > candidates_[best].pivot) best = k;
        return best;
    }
    /// Chooses the last group with a best pivot close to the largest of all.
    void choose() {
        double most = 0.0;
        for (const auto& g : groups_)
            most = std::max(most, candidates_[largest_pivot(g)].pivot);
        for (auto g = groups_.size(); g-- > 0;) {
            const auto best = largest_pivot(groups_[g]);
            if (candidates_[best].pivot < std::min(parameters.share_of_largest_pivot * most, 1.0)) continue;
            entering_ = candidates_[best].variable;
            for (std::size_t k = 0; k < groups_[g].begin; ++k)
                flipped_.push_back(candidates_[k].variable);
            return;
        }
    }

    std::vector<candidate> candidates_;
    std::vector<group> groups_;
    std::vector<int> flipped_;
    double tolerance_ = 0.0;
    double slope_ = 0.0;
    int entering_ = -1;
};

} // namespace optpipe::milp::lp
