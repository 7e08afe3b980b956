// expect: executor: needs .rank self
#include "archetypes/executor.hpp"
#include "mutants/executor.hpp"

#ifdef OPTPIPE_CONTROL
using subject = optpipe::testing::archetype::executor;
#else
using subject = optpipe::testing::mutant::executor_without_place;
#endif
static_assert(optpipe::execution::check_executor<subject>());
