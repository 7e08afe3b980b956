#pragma once

#include "optpipe/milp/lp/parameters.hpp"
#include "optpipe/milp/lp/tableau.hpp"
#include "optpipe/milp/lp/work_vector.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <vector>

namespace optpipe::milp::lp {

/// Chooses the row that leaves the basis in the dual simplex method. The row with the largest violation² / weight is
/// chosen. Weights follow dual steepest edge (Forrest and Goldfarb, 1992).
class dual_pricing {
public:
    dual_pricing(tableau& t, double tolerance) : t_{t}, tolerance_{tolerance} {}

    /// The amount by which a row's basic variable violates its bounds. The amount is positive above the upper bound,
    /// negative below the lower bound, and 0 within the tolerance.
    [[nodiscard]] double violation(int row) const {
        const auto j = at(t_.head[at(row)]);
        if (t_.value[j] > t_.upper[j] + tolerance_) return t_.value[j] - t_.upper[j];
        if (t_.value[j] < t_.lower[j] - tolerance_) return t_.value[j] - t_.lower[j];
        return 0.0;
    }
    void refresh() {
        square_.resize(t_.head.size());
        for (std::size_t i = 0; i < square_.size(); ++i)
            refresh(static_cast<int>(i));
    }
    void refresh(int row) {
        const double v = violation(row);
        square_[at(row)] = v * v;
    }
    void ban(int row) { square_[at(row)] = 0.0; }
    /// The row whose variable leaves the basis. Negative if every basic variable is within its bounds.
    [[nodiscard]] int choose() const {
        int best = -1;
        double most = 0.0;
        for (std::size_t i = 0; i < square_.size(); ++i)
            if (square_[i] > most * t_.weight[i]) {
                most = square_[i] / t_.weight[i];
                best = static_cast<int>(i);
            }
        return best;
    }
    /// Replaces a weight by the true weight from the row of the inverse. Returns false if the stored weight was too
    /// wrong to keep the row.
    bool correct(int row, const work_vector& rho) {
        const double stored = t_.weight[at(row)];
        t_.weight[at(row)] = std::max(rho.square(), parameters.least_weight);
        return stored >= parameters.acceptable_weight * t_.weight[at(row)];
    }
    /// `column` is B^-1 times the entering column. `tau` is B^-1 times the row of the inverse.
    void update(int row, const work_vector& column, const work_vector& tau) {
        const double pivot = column[row];
        const double reference = t_.weight[at(row)];
        for (const int i : column.index) {
            if (i == row) continue;
            const double ratio = column[i] / pivot;
            double& w = t_.weight[at(i)];
            w = std::max(w + ratio * (ratio * reference - 2.0 * tau[i]), parameters.least_weight);
        }
        t_.weight[at(row)] = std::max(reference / (pivot * pivot), parameters.least_weight);
    }

private:
    tableau& t_;
    double tolerance_;
    std::vector<double> square_;
};

} // namespace optpipe::milp::lp
