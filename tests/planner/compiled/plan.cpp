#include <optpipe/planner/plan.hpp>
#include <optpipe/planner/plan_search.hpp>

#if !defined(OPTPIPE_PLANNER_COMPILED)
#error "this file is to be compiled with OPTPIPE_PLANNER_COMPILED, like all that link it"
#endif
