// expect: milp_solver: needs .std::string_view name
#include "archetypes/milp_solvers.hpp"
#include "mutants/milp_solvers.hpp"

#ifdef OPTPIPE_CONTROL
using solver = optpipe::testing::archetype::solver;
#else
using solver = optpipe::testing::mutant::solver_without_name;
#endif
static_assert(optpipe::milp::check_milp_solver<solver>());
