// expect: milp_solver: needs .result operator
#include "archetypes/milp_solvers.hpp"
#include "mutants/milp_solvers.hpp"

#ifdef OPTPIPE_CONTROL
using solver = optpipe::testing::archetype::solver;
#else
using solver = optpipe::testing::mutant::solver_with_bare_objective;
#endif
static_assert(optpipe::milp::check_milp_solver<solver>());
