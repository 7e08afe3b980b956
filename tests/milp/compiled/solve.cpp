#include <optpipe/milp/search/run.hpp>
#include <optpipe/milp/solve.hpp>

#if !defined(OPTPIPE_MILP_COMPILED)
#error "this file is to be compiled with OPTPIPE_MILP_COMPILED, like all that link it"
#endif
