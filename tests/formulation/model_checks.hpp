// Checks of a model and its points, for the tests of the formulation.
#pragma once

#include "optpipe/formulation/formulate.hpp"
#include "optpipe/formulation/schedule_of.hpp"
#include "optpipe/formulation/values_of.hpp"
#include "optpipe/milp/check.hpp"
#include "optpipe/milp/solve.hpp"
#include "optpipe/schedule/time/evaluate.hpp"
#include "optpipe/schedule/time/validate.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>

namespace model_checks {

using namespace optpipe;

inline bool near(double a, double b) { return std::abs(a - b) <= 1e-5 * std::max(1.0, std::abs(b)); }

/// The strengthenings, each on or off by one bit.
inline formulation::strengthenings some_of(std::uint64_t bits) {
    const auto bit = [&](unsigned k) { return (bits >> k & 1U) != 0; };
    formulation::strengthenings with;
    with.propagation = bit(1);
    with.monotone = bit(2);
    with.load = bit(3);
    with.tails = bit(4);
    with.memory_area = bit(5);
    return with;
}

inline milp::result solved(const formulation::formulated& f) {
    milp::solve_options o;
    o.time_limit = std::chrono::duration<double>{60};
    return milp::solve(f.model, o);
}

/// Checks that the schedule of a solution is valid, and that its objective is at most that of the model.
inline void check_solution(const problem& p, const formulation::formulated& f, const milp::result& r) {
    REQUIRE(r.incumbent.has_value());
    const auto timed = schedule_of(f, *r.incumbent);
    REQUIRE(timed.has_value());
    CHECK(is_valid(p, *timed));
    const double value = objective_of(p, *timed).value();
    CHECK((value < r.objective || near(value, r.objective)));
}

/// Checks that the schedule is a point of the model with the same objective.
inline void check_witness(const problem& p, const formulation::formulated& f, const schedule& s) {
    const auto point = values_of(f, s);
    REQUIRE(point.has_value());
    const auto faults = milp::check(f.model, *point);
    CHECK_MESSAGE(faults.empty(), milp::describe(f.model, faults.front()));
    CHECK(near(milp::objective_value(f.model, *point), objective_of(p, s).value()));
}

/// Whether the model has all storage options of the schedule.
inline bool has_options_of(const formulation::formulated& f, const schedule& s) {
    return std::all_of(s.operations.begin(), s.operations.end(), [&](const timed_operation& timed) {
        return f.operations->replacement(timed.op.stage, timed.op.storage) == timed.op.storage;
    });
}

/// Whether the model has a point for the schedule; if so, checks that the point converts back to a schedule that isn't
/// worse.
inline bool is_point(const problem& p, const formulation::formulated& f, const schedule& s) {
    const auto point = values_of(f, s);
    if (!point) {
        CHECK(point.why().reason == refusal_reason::does_not_apply);
        CHECK(f.keeps_order);
        return false;
    }
    const auto faults = milp::check(f.model, *point);
    CHECK_MESSAGE(faults.empty(), milp::describe(f.model, faults.front()));
    const auto objective = objective_of(p, s);
    const double value = milp::objective_value(f.model, *point);
    CHECK(value <= objective.value() * (1.0 + 1e-9));
    if (has_options_of(f, s)) CHECK(value == doctest::Approx(objective.value()));
    const auto back = schedule_of(f, *point);
    // Transfers belong to no microbatch.
    if (f.is_pooled && !back) return true;
    REQUIRE(back.has_value());
    CHECK(is_valid(p, *back));
    CHECK(objective_of(p, *back).value() <= objective.value() * (1.0 + 1e-9));
    return true;
}

} // namespace model_checks
