// expect: copy engine: needs .void copy
#include "archetypes/executor.hpp"
#include "mutants/executor.hpp"

#ifdef OPTPIPE_CONTROL
using subject = optpipe::testing::archetype::copy_engine;
#else
using subject = optpipe::testing::mutant::copy_engine_without_copy;
#endif
static_assert(optpipe::execution::check_copy_engine<subject, optpipe::testing::archetype::lane>());
