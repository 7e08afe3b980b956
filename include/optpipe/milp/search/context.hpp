#pragma once

#include "optpipe/milp/model.hpp"
#include "optpipe/milp/options.hpp"
#include "optpipe/milp/search/control.hpp"
#include "optpipe/milp/search/incumbents.hpp"
#include "optpipe/milp/search/problem.hpp"
#include "optpipe/milp/search/propagation/domains.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <functional>
#include <mutex>
#include <optional>
#include <span>
#include <utility>
#include <vector>

namespace optpipe::milp::search {

/// The user's hooks, converted to the current problem. Each hook may be missing.
struct guidance {
    std::vector<int> priorities;
    std::function<std::vector<sparse_row>(std::span<const double> point)> cuts_at;
    /// Returns a solution of the given model.
    std::function<std::optional<std::vector<double>>(std::span<const double> point)> solution_near;
    double bound = -infinity;
};

/// Limits for the search of a neighbourhood.
struct sub_effort {
    std::size_t nodes = 0;
    std::size_t iterations = 0; ///< limit of simplex iterations; a relaxation that has been started is finished first
};

/// The data that all components of one search share. The data is constant during the search, except where comments say
/// otherwise. Members that change may be used from any thread.
struct context {
    const search::problem* instance = nullptr;
    const solve_options* options = nullptr;
    control* limits = nullptr;
    incumbents* best = nullptr;
    guidance help;
    /// Converts a point of the problem to a point of the given model.
    std::function<std::vector<double>(std::span<const double>)> to_given;
    /// A known point of the problem, for tests. The search must keep this point until an incumbent is at least as good.
    /// Empty if no such point is known.
    std::vector<double> witness_point;
    double witness_objective = infinity;
    std::function<void(const char*)> witness_lost;
    /// Called after each new incumbent.
    std::function<void()> on_incumbent;
    /// The difference between an objective in `incumbents` and the objective of the problem.
    double shift = 0.0;
    /// The user's objective minus an objective in `incumbents`, apart from the sign.
    double offset = 0.0;
    /// The worst objective of interest, on the scale of `incumbents`.
    double ceiling = infinity;

    /// Solves the model of a neighbourhood. Returns the best point found in the neighbourhood.
    std::function<std::optional<std::vector<double>>(const milp::model&, sub_effort most, double cutoff)> solve_sub;

    bool offer_given(std::vector<double> values) const {
        const bool taken = best->offer(std::move(values));
        if (taken && on_incumbent) on_incumbent();
        return taken;
    }
    [[nodiscard]] double incumbent_objective() const { return best->objective() - shift; }

    /// The worst allowed objective of a new point if the incumbent has `objective`.
    [[nodiscard]] double cutoff_below(double objective) const {
        if (objective == infinity) return ceiling - shift;
        return std::min(ceiling - shift, objective - std::max(least_gain(objective), wanted_gap(objective)));
    }
    /// Whether the user's gap decides the cutoff, rather than the step of objective values.
    [[nodiscard]] bool gap_decides(double objective) const { return wanted_gap(objective) > least_gain(objective); }

    /// Objectives that differ by less than this slack count as equal. The slack is relative to the objective that the
    /// user sees. The search's own objective may include a far larger constant from presolve. The slack is at least the
    /// rounding error of the problem's own objective.
    [[nodiscard]] double objective_slack(double objective) const {
        return std::max(instance->tolerances.objective_slack(objective + shift + offset),
                        noise_of_sum(std::abs(objective)));
    }
    /// The least amount by which a better point improves the objective.
    [[nodiscard]] double least_gain(double objective) const {
        constexpr double share = 0.1;
        const double step = instance->objective_step;
        const double slack = objective_slack(objective);
        return step > slack ? step - 0.5 * slack : share * slack;
    }
    [[nodiscard]] double wanted_gap(double objective) const {
        return std::max(options->absolute_gap, options->relative_gap * std::abs(objective + shift + offset));
    }

    /// Checks that the row `entries <= limit` doesn't exclude the witness. Called before the row is applied to all
    /// nodes.
    void watch(std::span<const entry> entries, double limit) const {
        if (witness_point.empty() || incumbent_objective() <= witness_objective) return;
        double sum = -limit;
        for (const auto& e : entries)
            sum += e.coefficient * witness_point[e.column];
        if (sum > instance->tolerances.slack(limit)) witness_lost("a cut");
    }
    /// Checks that the bounds in `d` keep the witness, unless it violates one of `decisions`.
    void watch(const domains& d, std::span<const literal> decisions, double cutoff, const char* place) const {
        if (witness_point.empty() || cutoff < witness_objective || limits->finished()) return;
        for (const auto& l : decisions)
            if (!holds_at(l, witness_point[column_of(l.bound)], instance->tolerances.integrality)) return;
        for (std::size_t j = 0; j < d.columns(); ++j)
            if (witness_point[j] < d.lower(j) - instance->tolerances.slack(d.lower(j)) ||
                witness_point[j] > d.upper(j) + instance->tolerances.slack(d.upper(j)))
                return witness_lost(place);
    }
};

} // namespace optpipe::milp::search
