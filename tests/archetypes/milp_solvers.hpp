#pragma once

#include "optpipe/milp/check.hpp"
#include "optpipe/milp/model.hpp"
#include "optpipe/milp/options.hpp"
#include "optpipe/milp/result.hpp"
#include "optpipe/milp/solver.hpp"

#include <cmath>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace optpipe::testing {

namespace archetype {

/// Gives up at once, which is always allowed.
struct solver {
    milp::result operator()(const milp::model& m, const milp::solve_options&) {
        const double sign = m.direction() == milp::sense::minimize ? 1.0 : -1.0;
        milp::result r;
        r.objective = sign * milp::infinity;
        r.bound = -sign * milp::infinity;
        return r;
    }
    std::string_view name() const { return "archetype"; }
};
static_assert(milp::milp_solver<solver>);

} // namespace archetype

namespace detail {

struct solver_case {
    std::string name;
    milp::model model;
    milp::termination truth;
    double objective = 0.0;
};

/// Small models, each with a feature that adapters often get wrong.
inline std::vector<solver_case> solver_cases() {
    using namespace milp;
    std::vector<solver_case> cases;
    {
        model m;
        const auto x = m.add_variable(0.0, infinity), y = m.add_variable(-infinity, 3.0);
        m.add_row(-2.0 <= x - y <= 8.0);
        m.set_objective(2.0 * x + y - 7.0, sense::maximize);
        cases.push_back({"a ranged row, maximized, with an offset", m, optimal{}, 18.0});
    }
    {
        model m;
        const auto x = m.add_variable(-5.0, -1.5, domain::integer), y = m.add_binary();
        m.add_row(2.0 * x + 3.0 * y == -1.0);
        m.set_objective(x - 10.0 * y);
        cases.push_back({"integers below 0 in an equation", m, optimal{}, -12.0});
    }
    {
        model m;
        const auto x = m.add_variable(0.0, 10.0, domain::integer);
        m.add_row(0.25 <= x - 3.0 <= 0.75);
        cases.push_back({"no whole number in a range", m, infeasible{}});
    }
    {
        model m;
        const auto x = m.add_variable(0.0, infinity, domain::integer);
        m.set_objective(x, sense::maximize);
        cases.push_back({"nothing that bounds the objective", m, unbounded{}});
    }
    {
        model m;
        m.add_variable(2.0, 4.0);
        m.add_row(-infinity, {}, 0.0);
        cases.push_back({"no objective, and an empty row", m, optimal{}, 0.0});
    }
    return cases;
}

inline std::string solver_mistake(const solver_case& c, const milp::result& r) {
    using namespace milp;
    constexpr double tolerance = 1e-5;
    const double sign = c.model.direction() == sense::minimize ? 1.0 : -1.0;
    const bool has_optimum = std::holds_alternative<optimal>(c.truth);
    if (r.incumbent) {
        if (r.incumbent->size() != c.model.variables()) return "the incumbent has another number of values";
        if (!check(c.model, *r.incumbent, {tolerance}).empty()) return "the incumbent isn't feasible";
        if (std::abs(objective_value(c.model, *r.incumbent) - r.objective) > tolerance)
            return "the objective isn't that of the incumbent";
    }
    if (has_optimum && sign * (r.bound - c.objective) > tolerance) return "the bound excludes the optimum";
    if (std::holds_alternative<stopped>(r.why)) return "";
    if (r.why.index() != c.truth.index()) return "says " + std::string{status_of(r.why)};
    if (!has_optimum) return "";
    if (!r.incumbent) return "optimal, without an incumbent";
    return std::abs(r.objective - c.objective) > tolerance ? "the optimum is another" : "";
}

} // namespace detail

/// Wrong answers of a solver for a few small models, one sentence each. Stopping early is no mistake.
template <milp::milp_solver Solver>
[[nodiscard]] std::vector<std::string> solver_mistakes(Solver solver, const milp::solve_options& options = {}) {
    std::vector<std::string> found;
    for (const auto& c : detail::solver_cases())
        if (const auto mistake = detail::solver_mistake(c, solver(c.model, options)); !mistake.empty())
            found.push_back(c.name + ": " + mistake);
    return found;
}

} // namespace optpipe::testing
