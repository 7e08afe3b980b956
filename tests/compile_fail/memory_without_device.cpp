// expect: memory: needs .device
#include "archetypes/executor.hpp"
#include "mutants/executor.hpp"

#ifdef OPTPIPE_CONTROL
using subject = optpipe::testing::archetype::device_memory;
#else
using subject = optpipe::testing::mutant::memory_without_device;
#endif
static_assert(optpipe::execution::check_memory<subject>());
