// expect: memory: needs .host
#include "archetypes/executor.hpp"
#include "mutants/executor.hpp"

#ifdef OPTPIPE_CONTROL
using subject = optpipe::testing::archetype::device_memory;
#else
using subject = optpipe::testing::mutant::memory_without_host;
#endif
static_assert(optpipe::execution::check_memory<subject>());
