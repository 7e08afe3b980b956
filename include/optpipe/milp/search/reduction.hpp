#pragma once

#include "optpipe/core/contract.hpp"
#include "optpipe/milp/expression.hpp"
#include "optpipe/milp/model.hpp"
#include "optpipe/milp/presolve.hpp"
#include "optpipe/milp/presolve/margins.hpp"
#include "optpipe/milp/search/control.hpp"
#include "optpipe/milp/search/implied_integers.hpp"
#include "optpipe/milp/search/problem.hpp"
#include "optpipe/milp/search/propagation/domains.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <span>
#include <utility>
#include <vector>

namespace optpipe::milp::search {

/// The model that is searched, and one presolve step per restart. The steps convert points of this model back to points
/// of the given model.
class reduction {
public:
    /// Starts with the given model. Bounds may cross by no more than the tolerance. Two crossing bounds are replaced by
    /// their midpoint. A large bound that may stand for "no limit" becomes a row.
    void start(const milp::model& given) {
        steps_.clear();
        model_ = given;
        noise_.clear();
        const auto middle = [](double lower, double upper) { return lower + (upper - lower) / 2.0; };
        for (const variable x : model_.all_variables())
            if (model_.lower(x) > model_.upper(x)) set_both(x, middle(model_.lower(x), model_.upper(x)));
        for (const row r : model_.all_rows())
            if (model_.row_lower(r) > model_.row_upper(r))
                set_both(r, middle(model_.row_lower(r), model_.row_upper(r)));
        forget_endless_sides();
        for (const variable x : model_.all_variables())
            move_far_bounds(x);
    }
    /// Rounds bounds from `implied_integers` that are integral except for noise. Rounding comes first, because presolve
    /// would carry the noise into rows.
    void settle_on_grid(const numbers& tolerances) {
        auto with_implied = problem_of(model_, tolerances);
        if (!with_implied.has_integers() || implied_integers{with_implied}.apply() == 0) return;
        for (const variable x : model_.all_variables()) {
            const auto j = x.position();
            if (with_implied.kind[j] == column_kind::implied)
                model_.set_bounds(x, with_implied.unit[j] * with_implied.lower[j],
                                  with_implied.unit[j] * with_implied.upper[j]);
        }
    }
    [[nodiscard]] const milp::model& model() const { return model_; }
    /// For each row, the error of its two sides. Empty if all row sides are exact.
    [[nodiscard]] const std::vector<double>& noise() const { return noise_; }
    [[nodiscard]] std::size_t bytes() const {
        auto sum = model_.bytes();
        for (const auto& step : steps_)
            sum += step.bytes();
        return sum;
    }

    /// With `keeps_rows`, reductions keep every feasible point, and rows can still be translated.
    presolve_status reduce(bool keeps_rows, const feasibility& feasible, const control& c) {
        presolve_options options;
        options.dual_reductions = options.many_to_one = !keeps_rows;
        options.deadline = c.deadline();
        options.stop = c.token();
        options.margins.feasible = feasible;
        options.noise = noise_;
        auto step = presolve(model_, options);
        const auto status = step.status();
        if (status == presolve_status::infeasible) return status;
        model_ = step.model();
        noise_ = step.noise();
        steps_.push_back(std::move(step));
        return status;
    }
    /// Takes over bounds that a search has derived.
    void tighten(const domains& d, const problem& p) {
        for (std::size_t j = 0; j < p.columns(); ++j) {
            const variable x{j};
            const double low = std::max(model_.lower(x), p.unit[j] * d.at_root(lower_of(j)));
            const double up = std::min(model_.upper(x), -p.unit[j] * d.at_root(upper_of(j)));
            if (low <= up) model_.set_bounds(x, low, up);
        }
    }

    [[nodiscard]] std::vector<double> restore(std::vector<double> values) const {
        for (auto step = steps_.rbegin(); step != steps_.rend(); ++step)
            values = step->restore(values);
        return values;
    }
    [[nodiscard]] std::vector<double> project(std::vector<double> values) const {
        for (const auto& step : steps_)
            values = step.project(values);
        return values;
    }
    /// Translates a row of the original model to the current model. Contract: every presolve step was told to keep
    /// rows.
    [[nodiscard]] constraint translate(constraint c) const {
        for (const auto& step : steps_) {
            auto next = step.translate(c);
            OPTPIPE_EXPECT(next.has_value(), "translate: presolve was free to forget columns");
            c = std::move(*next);
        }
        return c;
    }
    /// Picks the current variables' values from those of the original variables.
    [[nodiscard]] std::vector<int> pick(const std::vector<int>& original) const {
        auto values = original;
        for (const auto& step : steps_) {
            std::vector<int> next(step.model().variables(), 0);
            for (std::size_t j = 0; j < values.size(); ++j)
                if (const auto x = step.find(variable{j})) next[x->position()] = values[j];
            values = std::move(next);
        }
        return values;
    }

private:
    /// The bound, or infinity if other solvers would read the bound as infinite.
    static double without_endless(double bound) {
        constexpr double endless = 1e20;
        return std::abs(bound) < endless ? bound : std::copysign(infinity, bound);
    }
    void forget_endless_sides() {
        for (const row r : model_.all_rows()) {
            const double low = without_endless(model_.row_lower(r)), up = without_endless(model_.row_upper(r));
            if (low < infinity && up > -infinity) model_.set_bounds(r, low, up);
        }
    }
    void move_far_bounds(variable x) {
        using presolving::margins;
        const double lower = model_.lower(x), upper = model_.upper(x);
        const bool below = margins::is_far_below(lower, upper), above = margins::is_far_above(upper, lower);
        if (!below && !above) return;
        model_.set_bounds(x, below ? -infinity : lower, above ? infinity : upper);
        const double low = below ? without_endless(lower) : -infinity, up = above ? without_endless(upper) : infinity;
        if (low > -infinity || up < infinity) model_.add_row(low, {{x, 1.0}}, up);
    }
    template <class Place> void set_both(Place at, double value) { model_.set_bounds(at, value, value); }

    milp::model model_;
    std::vector<double> noise_;
    std::vector<presolve_result> steps_;
};

} // namespace optpipe::milp::search
