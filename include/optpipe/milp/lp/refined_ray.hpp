#pragma once

#include "optpipe/core/random.hpp"
#include "optpipe/milp/lp/double_double.hpp"
#include "optpipe/milp/lp/tableau.hpp"
#include "optpipe/milp/lp/work_vector.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <span>
#include <vector>

namespace optpipe::milp::lp {

/// The error of a number that was rounded to a double. A number whose last 13 bits are 0 counts as exact: by chance,
/// one of 8192 rounded numbers ends so.
[[nodiscard]] inline double error_of_input(double v) {
    constexpr int bits = 40; // of the 53 bits of a double
    int exponent = 0;
    const double digits = std::ldexp(std::frexp(v, &exponent), bits);
    return digits == std::round(digits) ? 0.0 : 0.5 * std::numeric_limits<double>::epsilon() * std::abs(v);
}

/// A ray of the primal method, computed to about twice the digits of a double by iterative refinement. A ray keeps some
/// variables in place, so their rates are differences of large terms, in which a small coefficient decides. Each
/// variable, column or slack, has a rate.
class refined_ray {
public:
    refined_ray(tableau& t, std::span<const double> ray, random_numbers& random) : t_{t}, error_(ray.size(), 0.0) {
        for (const double rate : ray)
            rate_.push_back({rate, 0.0});
        constexpr int passes = 4; // each multiplies the error by about 1e-16 times the condition number; not tuned
        for (int pass = 0; pass < passes; ++pass)
            correct(residual());
        estimate_errors(random);
    }

    /// Whether the ray lowers the cost without limit. A rate counts as 0 if rounding errors of the coefficients explain
    /// it.
    [[nodiscard]] bool proves_unboundedness() const {
        for (std::size_t j = 0; j < rate_.size(); ++j)
            if (!std::isfinite(rate_[j].high) || ends(j)) return false;
        double_double gain;
        double error = 0.0;
        for (std::size_t j = 0; j < rate_.size(); ++j) {
            const double cost = t_.program.cost[j];
            gain += cost * rate_[j];
            error += error_of_input(cost) * std::abs(rate_[j].high) + std::abs(cost) * (error_[j] + arithmetic_);
        }
        return gain.high < -error;
    }

    [[nodiscard]] std::vector<double> rates() const {
        std::vector<double> result;
        for (const auto& rate : rate_)
            result.push_back(rate.high);
        return result;
    }

private:
    [[nodiscard]] bool ends(std::size_t j) const {
        const double error = error_[j] + arithmetic_;
        return (rate_[j].high > error && std::isfinite(t_.program.upper[j])) ||
               (rate_[j].high < -error && std::isfinite(t_.program.lower[j]));
    }
    /// A x + s of the ray, which would be 0 without rounding errors.
    [[nodiscard]] std::vector<double_double> residual() const {
        const auto& a = t_.program.by_column;
        std::vector<double_double> rows(rate_.begin() + t_.program.columns, rate_.end());
        for (int j = 0; j < t_.program.columns; ++j)
            for (int k = a.begin(j); k < a.end(j); ++k)
                rows[at(a.index[at(k)])] += a.value[at(k)] * rate_[at(j)];
        return rows;
    }
    /// Solves B x = b. The solve drops tiny values, so b is scaled.
    [[nodiscard]] std::vector<double_double> solve(std::span<const double> b) {
        double size = 0.0;
        for (const double v : b)
            size = std::max(size, std::abs(v));
        std::vector<double_double> x(b.size());
        if (size == 0.0 || !std::isfinite(size)) return x;
        work_.resize(b.size());
        for (std::size_t i = 0; i < b.size(); ++i)
            if (b[i] != 0.0) work_.insert(static_cast<int>(i), b[i] / size);
        density_history dense{1.0};
        t_.factors.forward(work_, dense);
        for (std::size_t i = 0; i < b.size(); ++i)
            x[i] = double_double::product(size, work_.value[i]);
        return x;
    }
    void correct(std::span<const double_double> residual) {
        std::vector<double> b;
        for (const auto& r : residual)
            b.push_back(-r.high);
        const auto x = solve(b);
        for (std::size_t i = 0; i < x.size(); ++i)
            rate_[at(t_.head[i])] += x[i];
    }
    /// Estimates how far the rates move if each coefficient moves by its rounding error, and each term by that of the
    /// arithmetic. The moves have random sizes, so that they don't cancel.
    void estimate_errors(random_numbers& random) {
        constexpr double safety = 8.0;   // the estimate is random and may be too small; not tuned
        constexpr double digits = 1e-30; // relative error of `double_double`, with a margin of about two bits
        const auto& a = t_.program.by_column;
        std::vector<double> moved(t_.head.size(), 0.0);
        for (int j = 0; j < t_.program.columns; ++j)
            for (int k = a.begin(j); k < a.end(j); ++k) {
                const double v = a.value[at(k)];
                moved[at(a.index[at(k)])] += (error_of_input(v) + digits * std::abs(v)) * std::abs(rate_[at(j)].high);
            }
        for (double& v : moved)
            v *= safety * (1.0 + random.share());
        const auto x = solve(moved);
        for (std::size_t i = 0; i < x.size(); ++i)
            error_[at(t_.head[i])] = std::abs(x[i].high);
        for (const auto& rate : rate_)
            arithmetic_ = std::max(arithmetic_, digits * std::abs(rate.high));
    }

    tableau& t_;
    std::vector<double_double> rate_;
    std::vector<double> error_; ///< of each rate, from the rounding of coefficients
    double arithmetic_ = 0.0;   ///< the least error of any rate, because digits are limited
    work_vector work_;
};

} // namespace optpipe::milp::lp
