// expect: milp_solver: needs to be copyable
#include "archetypes/milp_solvers.hpp"
#include "mutants/milp_solvers.hpp"

#ifdef OPTPIPE_CONTROL
using solver = optpipe::testing::archetype::solver;
#else
using solver = optpipe::testing::mutant::solver_without_copy;
#endif
static_assert(optpipe::milp::check_milp_solver<solver>());
