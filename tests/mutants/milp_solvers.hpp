#pragma once

#include "archetypes/milp_solvers.hpp"
#include "optpipe/milp/model.hpp"
#include "optpipe/milp/options.hpp"
#include "optpipe/milp/result.hpp"

/// Archetypes that each lack one requirement.
namespace optpipe::testing::mutant {

struct solver_without_copy : archetype::solver {
    solver_without_copy() = default;
    solver_without_copy(solver_without_copy&&) = default;
    solver_without_copy& operator=(solver_without_copy&&) = default;
};
struct solver_without_call : archetype::solver {
    void operator()(const milp::model&, const milp::solve_options&) = delete;
};
struct solver_of_its_own_model : archetype::solver {
    milp::result operator()(milp::model&, const milp::solve_options&) { return {}; }
};
struct solver_with_bare_objective : archetype::solver {
    double operator()(const milp::model&, const milp::solve_options&) { return 0.0; }
};
struct solver_without_name : archetype::solver {
    void name() const = delete;
};

} // namespace optpipe::testing::mutant
