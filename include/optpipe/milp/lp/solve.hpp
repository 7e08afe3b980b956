#pragma once

#include "optpipe/milp/lp/simplex.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

namespace optpipe::milp {

inline bool simplex::has_crossed_bounds() const {
    for (std::size_t j = 0; j < columns(); ++j)
        if (program_.column_lower[j] > program_.column_upper[j]) return true;
    for (std::size_t i = 0; i < rows(); ++i)
        if (program_.row_lower[i] > program_.row_upper[i]) return true;
    return false;
}

/// What to do differently once a result did not stand its check.
inline lp::method_settings simplex::settings(int attempt) const {
    lp::method_settings s{options_.pricing, options_.primal_tolerance, options_.dual_tolerance, options_.updates, true};
    constexpr int few_updates = 20;
    if (attempt >= 1) s.updates = std::min(s.updates, few_updates);
    if (attempt == 1) s.perturb = false;
    return s;
}

inline void simplex::prepare(int attempt) {
    auto& t = tableau_;
    constexpr int without_scaling = 3;
    constexpr double tight_threshold = 0.5;
    if (attempt > 0) {
        t.rules.threshold = attempt == 1 ? t.rules.threshold : tight_threshold;
        is_factorized_ = false;
    }
    if (attempt == without_scaling) {
        load(false);
        reset_basis();
    }
    if (options_.pricing != pricing_rule::steepest_edge) std::fill(t.weight.begin(), t.weight.end(), 1.0);
    t.restore_bounds();
    t.restore_costs();
    t.settle_all();
    if (!is_factorized_) factorize();
    attempt_iterations_ = 0;
}

inline lp_status simplex::solve(const simplex_limits& limits) {
    limits_ = limits;
    first_iteration_ = iterations_;
    objective_ = -std::numeric_limits<double>::infinity();
    next_cutoff_check_ = limits.cutoff;
    infeasibility_ray_.assign(rows(), 0.0);
    unbounded_ray_.assign(columns(), 0.0);
    if (has_crossed_bounds()) return lp_status::infeasible;
    constexpr int attempts = 4;
    const auto rules = tableau_.rules;
    std::optional<lp_status> found;
    for (int a = 0; a < attempts && !found; ++a) {
        prepare(a);
        found = attempt(settings(a));
    }
    tableau_.rules = rules;
    if (is_scaled_ != options_.scaling) load(options_.scaling);
    return found.value_or(lp_status::numerical_trouble);
}

inline std::optional<lp_status> simplex::attempt(const lp::method_settings& settings) {
    auto current = settings;
    constexpr int rounds = 5;
    for (int round = 0; round < rounds; ++round) {
        verdict_ = std::nullopt;
        bool costs_changed = false;
        if (!run_dual(current, costs_changed)) return verdict_;
        bool bounds_changed = false;
        if (costs_changed) {
            tableau_.restore_costs();
            tableau_.compute_reduced_costs();
            if (!tableau_.is_dual_feasible(current.dual_tolerance) && !run_primal(current, bounds_changed))
                return verdict_;
        }
        if (!bounds_changed && claims_optimal()) return lp_status::optimal;
        tableau_.restore_bounds();
        tableau_.restore_costs();
        tableau_.settle_all();
        factorize();
        current.perturb = round % 2 == 1;
    }
    return std::nullopt;
}

/// True if the working costs' optimum was reached; otherwise `verdict_` says what is known, if anything.
inline bool simplex::run_dual(const lp::method_settings& settings, bool& costs_changed) {
    const auto interrupt = [this](double objective) {
        ++iterations_;
        return is_interrupted() || proves_cutoff(objective);
    };
    lp::dual_method method{tableau_, settings, random_, interrupt};
    const auto end = method.run();
    costs_changed = method.costs_changed();
    switch (end) {
    case lp::method_end::optimal: return true;
    case lp::method_end::ray:
        if (claims_infeasible(method.ray())) verdict_ = lp_status::infeasible;
        break;
    case lp::method_end::interrupted:
        if (verdict_ != lp_status::cutoff) stop_early();
        break;
    case lp::method_end::trouble: break;
    }
    return false;
}

inline bool simplex::run_primal(const lp::method_settings& settings, bool& bounds_changed) {
    const auto interrupt = [this] {
        ++iterations_;
        return is_interrupted();
    };
    lp::primal_method method{tableau_, settings, random_, interrupt};
    const auto end = method.run();
    bounds_changed = method.bounds_changed();
    switch (end) {
    case lp::method_end::optimal: return true;
    case lp::method_end::ray:
        if (claims_unbounded(method.ray())) verdict_ = lp_status::unbounded;
        break;
    case lp::method_end::interrupted: stop_early(); break;
    case lp::method_end::trouble: break;
    }
    return false;
}

inline bool simplex::is_interrupted() {
    constexpr std::size_t between_looks_at_the_clock = 16;
    ++attempt_iterations_;
    if (iterations_ - first_iteration_ > limits_.iterations)
        verdict_ = lp_status::iteration_limit;
    else if (limits_.stop.stop_requested())
        verdict_ = lp_status::stopped;
    else if (attempt_iterations_ % between_looks_at_the_clock == 0 &&
             limits_.deadline != std::chrono::steady_clock::time_point::max() &&
             std::chrono::steady_clock::now() >= limits_.deadline)
        verdict_ = lp_status::stopped;
    // An attempt that goes round in circles ends without a verdict.
    return verdict_.has_value() || attempt_iterations_ > most_iterations();
}

/// The method's objective belongs to shifted costs and may be beyond the cutoff by that alone, so it only says when a
/// proof is worth trying.
inline bool simplex::proves_cutoff(double objective) {
    if (objective < next_cutoff_check_) return false;
    extract_duals();
    const double bound = safe_dual_bound(program_, solution_.duals);
    if (bound >= limits_.cutoff) {
        objective_ = bound;
        verdict_ = lp_status::cutoff;
        extract_primal();
        lp::complete(program_, solution_);
        return true;
    }
    constexpr double caution = 1e-4;
    next_cutoff_check_ = objective + caution * (1.0 + std::abs(objective));
    return false;
}

/// What is known when a limit ends the solve.
inline void simplex::stop_early() {
    if (!verdict_) return;
    extract_duals();
    extract_primal();
    lp::complete(program_, solution_);
    objective_ = dual_bound();
}

inline bool simplex::claims_infeasible(std::vector<double> multipliers) {
    for (std::size_t i = 0; i < rows(); ++i)
        multipliers[i] *= scale_.row[i];
    if (!verify_infeasible(program_, multipliers, options_.primal_tolerance)) return false;
    infeasibility_ray_ = std::move(multipliers);
    return true;
}

inline bool simplex::claims_unbounded(const std::vector<double>& direction) {
    extract_primal();
    lp::complete(program_, solution_);
    if (!lp::is_primal_feasible(program_, solution_, options_.accepted_violation)) return false;
    std::vector<double> ray(columns());
    for (std::size_t j = 0; j < columns(); ++j)
        ray[j] = direction[j] * scale_.column[j];
    if (!verify_unbounded(program_, ray, options_.dual_tolerance)) return false;
    unbounded_ray_ = std::move(ray);
    objective_ = -std::numeric_limits<double>::infinity();
    return true;
}

inline bool simplex::claims_optimal() {
    extract_primal();
    extract_duals();
    lp::complete(program_, solution_);
    objective_ = solution_.objective;
    return lp::is_primal_feasible(program_, solution_, options_.accepted_violation) &&
           lp::is_dual_feasible(program_, solution_, options_.accepted_violation);
}

inline void simplex::extract_primal() {
    for (std::size_t j = 0; j < columns(); ++j)
        switch (tableau_.status[j]) {
        case basis_status::basic: solution_.primal[j] = tableau_.value[j] * scale_.column[j]; break;
        case basis_status::at_lower: solution_.primal[j] = program_.column_lower[j]; break;
        case basis_status::at_upper: solution_.primal[j] = program_.column_upper[j]; break;
        case basis_status::free_at_zero: solution_.primal[j] = 0.0; break;
        }
}

inline void simplex::extract_duals() {
    tableau_.compute_multipliers(solution_.duals);
    for (std::size_t i = 0; i < rows(); ++i)
        solution_.duals[i] *= scale_.row[i];
}

} // namespace optpipe::milp
