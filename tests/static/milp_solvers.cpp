// The requirements of a solver, shown by types that lack one each.
#include "archetypes/milp_solvers.hpp"

#include "mutants/milp_solvers.hpp"
#include "optpipe/milp/solver.hpp"

namespace {

using optpipe::milp::milp_solver;
namespace archetype = optpipe::testing::archetype;
namespace mutant = optpipe::testing::mutant;

static_assert(milp_solver<archetype::solver> && optpipe::milp::check_milp_solver<archetype::solver>());
static_assert(!milp_solver<mutant::solver_without_copy>);
static_assert(!milp_solver<mutant::solver_without_call>);
static_assert(!milp_solver<mutant::solver_of_its_own_model>);
static_assert(!milp_solver<mutant::solver_with_bare_objective>);
static_assert(!milp_solver<mutant::solver_without_name>);

} // namespace
