#pragma once

#include "optpipe/milp/check.hpp"
#include "optpipe/milp/model.hpp"
#include "optpipe/milp/options.hpp"
#include "optpipe/milp/search/problem.hpp"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstddef>
#include <functional>
#include <mutex>
#include <optional>
#include <span>
#include <utility>
#include <vector>

namespace optpipe::milp::search {

/// The best solution of the given model. Every solution has passed `check` on the given model. All members may be
/// called from any thread.
class incumbents {
public:
    incumbents(const model& given, optpipe::tolerance tolerance, shared_incumbent* shared)
        : given_{&given}, tolerance_{tolerance}, shared_{shared}, sign_{given.direction() == sense::maximize ? -1.0
                                                                                                             : 1.0} {}

    /// Objective of the best solution, to be minimized, without the model's offset. Infinite if there is no solution.
    [[nodiscard]] double objective() const { return objective_.load(std::memory_order_acquire); }
    [[nodiscard]] bool exists() const { return objective() < infinity; }
    [[nodiscard]] std::size_t found() const { return found_.load(std::memory_order_relaxed); }
    [[nodiscard]] std::optional<std::vector<double>> values() const {
        const std::scoped_lock lock{mutex_};
        return values_;
    }

    /// The solution and objective that `offer` would store, or nothing. `values` has one value per variable of the
    /// given model.
    [[nodiscard]] std::optional<solution> verified(std::vector<double> values) const {
        if (values.size() != given_->variables()) return std::nullopt;
        for (const variable x : given_->all_variables())
            if (given_->is_integer(x)) values[x.position()] = rounded(values[x.position()]);
        auto within_bounds = values;
        for (const variable x : given_->all_variables())
            within_bounds[x.position()] = nudged(x, values[x.position()]);
        // A value on its bound may violate a row, so the original values are also tried.
        if (check(*given_, within_bounds, tolerance_).empty())
            values = std::move(within_bounds);
        else if (!check(*given_, values, tolerance_).empty())
            return std::nullopt;
        const double objective = sign_ * (objective_value(*given_, values) - given_->offset());
        return solution{objective, std::move(values)};
    }
    /// Returns whether the point became the incumbent.
    bool offer(std::vector<double> offered) {
        auto fine = verified(std::move(offered));
        if (!fine) return false;
        auto& [objective, values] = *fine;
        const std::scoped_lock lock{mutex_};
        if (objective >= objective_.load(std::memory_order_relaxed)) return false;
        values_ = std::move(values);
        if (shared_ != nullptr) shared_->write({objective_value(*given_, *values_), *values_});
        objective_.store(objective, std::memory_order_release);
        found_.fetch_add(1, std::memory_order_relaxed);
        return true;
    }

private:
    [[nodiscard]] double rounded(double value) const {
        return std::abs(value - std::round(value)) <= tolerance_.at(1.0) ? std::round(value) : value;
    }
    /// Moves a value that exceeds its bound by at most the tolerance onto the bound. Values of integer variables don't
    /// move.
    [[nodiscard]] double nudged(variable x, double value) const {
        const double slack = tolerance_.at(1.0);
        if (given_->is_integer(x)) return value;
        if (value < given_->lower(x) && value >= given_->lower(x) - slack) value = given_->lower(x);
        if (value > given_->upper(x) && value <= given_->upper(x) + slack) value = given_->upper(x);
        return value;
    }

    const model* given_;
    optpipe::tolerance tolerance_;
    shared_incumbent* shared_;
    double sign_;
    mutable std::mutex mutex_;
    std::optional<std::vector<double>> values_;
    std::atomic<double> objective_{infinity};
    std::atomic<std::size_t> found_{0};
};

} // namespace optpipe::milp::search
