// expect: executor: needs .void finish
#include "archetypes/executor.hpp"
#include "mutants/executor.hpp"

#ifdef OPTPIPE_CONTROL
using subject = optpipe::testing::archetype::executor;
#else
using subject = optpipe::testing::mutant::executor_without_finish;
#endif
static_assert(optpipe::execution::check_executor<subject>());
