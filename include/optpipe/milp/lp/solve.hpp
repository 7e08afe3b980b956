#pragma once

#include "optpipe/core/random.hpp"
#include "optpipe/milp/lp/certificate.hpp"
#include "optpipe/milp/lp/dual.hpp"
#include "optpipe/milp/lp/linear_program.hpp"
#include "optpipe/milp/lp/method.hpp"
#include "optpipe/milp/lp/options.hpp"
#include "optpipe/milp/lp/parameters.hpp"
#include "optpipe/milp/lp/phase_one.hpp"
#include "optpipe/milp/lp/primal.hpp"
#include "optpipe/milp/lp/refined_ray.hpp"
#include "optpipe/milp/lp/scaled_tableau.hpp"
#include "optpipe/milp/lp/solution.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

namespace optpipe::milp::lp {

/// The results of a solve, in terms of the unscaled program.
struct findings {
    solution point;
    std::vector<double> infeasibility_ray;
    std::vector<double> unbounded_ray;
    double objective = -std::numeric_limits<double>::infinity();
    std::size_t iterations = 0;
};

/// One solve of a program from the current basis. Runs the dual method, then the primal method if costs were shifted,
/// and checks the result. Failed checks cause attempts with more factorizations, then firmer pivots, then no scaling.
class solve_run {
public:
    solve_run(const linear_program& program, scaled_tableau& s, const simplex_options& options,
              const simplex_limits& limits, random_numbers& random, findings& found)
        : program_{program}, s_{s}, options_{options}, limits_{limits}, random_{random}, found_{found} {}

    lp_status run();

private:
    [[nodiscard]] method_settings settings(int attempt) const;
    void prepare(int attempt);
    std::optional<lp_status> attempt(method_settings settings);
    void start_round();
    bool prefers_primal(const method_settings& settings);
    bool run_phase_one(const method_settings& settings);
    bool run_dual(const method_settings& settings, bool& costs_changed);
    bool run_primal(const method_settings& settings, bool& bounds_changed);
    bool is_interrupted();
    bool proves_cutoff(double objective);
    void conclude_early();
    bool claims_infeasible(std::vector<double> multipliers, double least_proof);
    bool claims_unbounded(const std::vector<double>& ray);
    bool claims_optimal();
    void extract();
    [[nodiscard]] std::size_t most_iterations() const {
        return parameters.least_iteration_limit +
               parameters.iterations_per_variable * (program_.columns() + program_.rows());
    }

    const linear_program& program_;
    scaled_tableau& s_;
    const simplex_options& options_;
    const simplex_limits& limits_;
    random_numbers& random_;
    findings& found_;
    std::optional<lp_status> verdict_{};
    double next_cutoff_check_ = 0.0;
    std::size_t spent_ = 0;
    std::size_t spent_in_attempt_ = 0;
};

inline lp_status solve_run::run() {
    found_.objective = -std::numeric_limits<double>::infinity();
    found_.infeasibility_ray.assign(program_.rows(), 0.0);
    found_.unbounded_ray.assign(program_.columns(), 0.0);
    next_cutoff_check_ = limits_.cutoff;
    if (program_.has_crossed_bounds()) return lp_status::infeasible;
    const auto rules = s_.t.rules;
    std::optional<lp_status> result;
    for (int a = 0; a < parameters.attempts && !result; ++a) {
        prepare(a);
        result = attempt(settings(a));
    }
    s_.t.rules = rules;
    if (s_.is_scaled() != options_.scaling) s_.load(program_, options_.scaling);
    return result.value_or(lp_status::numerical_trouble);
}

inline method_settings solve_run::settings(int attempt) const {
    method_settings s{.updates = options_.updates, .perturb = attempt != 1};
    if (attempt == 0) return s;
    s.updates = std::min(s.updates, parameters.updates_when_careful);
    // Infeasibility within the tolerance may be reported either way, but always needs a proof.
    s.least_proof = 0.0;
    if (attempt > 1) s.primal_tolerance *= parameters.looser;
    if (attempt > 1) s.dual_tolerance *= parameters.looser;
    return s;
}

inline void solve_run::prepare(int attempt) {
    if (attempt > 0) s_.forget_factors();
    if (attempt >= parameters.attempt_with_firm_pivots) s_.t.rules.threshold = parameters.firm_threshold;
    if (attempt == parameters.attempt_without_scaling) {
        s_.load(program_, false);
        s_.reset_basis();
    }
    start_round();
    if (!s_.is_factorized()) s_.factorize();
    spent_in_attempt_ = 0;
}

inline void solve_run::start_round() {
    s_.t.restore_bounds();
    s_.t.restore_costs();
    s_.t.settle_all();
}

/// Runs the dual and the primal method alternately, until neither has any work left. If the basis is primal feasible,
/// but not dual feasible, the primal method runs first.
inline std::optional<lp_status> solve_run::attempt(method_settings settings) {
    verdict_ = std::nullopt;
    if (prefers_primal(settings)) {
        bool bounds_changed = false;
        if (run_primal(settings, bounds_changed) && !bounds_changed && claims_optimal()) return lp_status::optimal;
        if (verdict_) return verdict_;
        start_round();
        s_.factorize();
    }
    for (int round = 0; round < parameters.rounds; ++round) {
        verdict_ = std::nullopt;
        if (round == 0 && !run_phase_one(settings)) return verdict_;
        bool costs_changed = false;
        if (!run_dual(settings, costs_changed)) return verdict_;
        bool bounds_changed = false;
        if (costs_changed) {
            s_.t.restore_costs();
            s_.t.compute_reduced_costs();
            if (!s_.t.is_dual_feasible(settings.dual_tolerance) && !run_primal(settings, bounds_changed))
                return verdict_;
        }
        if (!bounds_changed && claims_optimal()) return lp_status::optimal;
        start_round();
        s_.factorize();
        settings.perturb = round % 2 == 1;
    }
    return std::nullopt;
}

/// Whether the current basis is primal feasible, but not dual feasible.
inline bool solve_run::prefers_primal(const method_settings& settings) {
    s_.t.compute_values();
    if (s_.t.primal_violation() > settings.primal_tolerance) return false;
    s_.t.compute_reduced_costs();
    return !s_.t.is_dual_feasible(settings.dual_tolerance);
}

/// Finds a dual feasible basis, if any. Returns false if a limit ended the search. Numerical trouble isn't handled
/// here, because the next steps can start from any basis.
inline bool solve_run::run_phase_one(const method_settings& settings) {
    s_.t.compute_reduced_costs();
    if (!needs_phase_one(s_.t, settings.dual_tolerance)) return true;
    set_phase_one_bounds(s_.t);
    dual_method method{s_.t, settings, random_, [this](double) { return is_interrupted(); }};
    const auto end = method.run();
    found_.iterations += method.iterations();
    start_round();
    if (end == method_end::interrupted && verdict_) {
        conclude_early();
        return false;
    }
    return true;
}

/// Returns true if the optimum of the working costs was reached. If the result is false, `verdict_` has the verdict of
/// the run, or is empty.
inline bool solve_run::run_dual(const method_settings& settings, bool& costs_changed) {
    const auto interrupt = [this](double objective) { return is_interrupted() || proves_cutoff(objective); };
    dual_method method{s_.t, settings, random_, interrupt};
    const auto end = method.run();
    costs_changed = method.costs_changed();
    found_.iterations += method.iterations();
    switch (end) {
    case method_end::optimal: return true;
    case method_end::ray:
        if (claims_infeasible(method.ray(), settings.least_proof)) verdict_ = lp_status::infeasible;
        break;
    case method_end::interrupted: conclude_early(); break;
    case method_end::trouble: break;
    }
    return false;
}

inline bool solve_run::run_primal(const method_settings& settings, bool& bounds_changed) {
    const auto interrupt = [this] { return is_interrupted(); };
    primal_method method{s_.t, settings, random_, interrupt};
    const auto end = method.run();
    bounds_changed = method.bounds_changed();
    found_.iterations += method.iterations();
    switch (end) {
    case method_end::optimal: return true;
    case method_end::ray:
        if (claims_unbounded(method.ray())) verdict_ = lp_status::unbounded;
        break;
    case method_end::interrupted: conclude_early(); break;
    case method_end::trouble: break;
    }
    return false;
}

inline bool solve_run::is_interrupted() {
    const bool limited = limits_.deadline != std::chrono::steady_clock::time_point::max();
    if (spent_ >= limits_.iterations)
        verdict_ = lp_status::iteration_limit;
    else if (limits_.stop.stop_requested() || s_.t.bytes() > limits_.memory)
        verdict_ = lp_status::stopped;
    else if (limited && spent_ % parameters.between_looks_at_the_clock == 0 &&
             std::chrono::steady_clock::now() >= limits_.deadline)
        verdict_ = lp_status::stopped;
    ++spent_;
    // An attempt that cycles ends without a verdict.
    return verdict_.has_value() || ++spent_in_attempt_ > most_iterations();
}

/// Shifted costs alone may lift the objective above the cutoff, so a proof is needed.
inline bool solve_run::proves_cutoff(double objective) {
    if (objective < next_cutoff_check_) return false;
    s_.extract_duals(found_.point.duals);
    if (safe_dual_bound(program_, found_.point.duals) >= limits_.cutoff) {
        verdict_ = lp_status::cutoff;
        return true;
    }
    next_cutoff_check_ = objective + parameters.cutoff_caution * (1.0 + std::abs(objective));
    return false;
}

inline void solve_run::conclude_early() {
    if (!verdict_) return;
    extract();
    found_.objective = safe_dual_bound(program_, found_.point.duals);
}

inline bool solve_run::claims_infeasible(std::vector<double> multipliers, double least_proof) {
    s_.unscale_multipliers(multipliers);
    if (!verify_infeasible(program_, multipliers, least_proof)) return false;
    found_.infeasibility_ray = std::move(multipliers);
    return true;
}

inline bool solve_run::claims_unbounded(const std::vector<double>& ray) {
    extract();
    if (!is_primal_feasible(program_, found_.point, parameters.accepted_violation)) return false;
    const refined_ray refined{s_.t, ray, random_};
    auto direction = s_.unscaled_direction(refined.rates());
    if (!refined.proves_unboundedness() || !verify_unbounded(program_, direction, parameters.dual_tolerance))
        return false;
    found_.unbounded_ray = std::move(direction);
    return true;
}

inline bool solve_run::claims_optimal() {
    extract();
    found_.objective = found_.point.objective;
    return is_primal_feasible(program_, found_.point, parameters.accepted_violation) &&
           is_dual_feasible(program_, found_.point, parameters.accepted_violation);
}

inline void solve_run::extract() {
    s_.extract_primal(program_, found_.point.primal);
    s_.extract_duals(found_.point.duals);
    complete(program_, found_.point);
}

} // namespace optpipe::milp::lp
