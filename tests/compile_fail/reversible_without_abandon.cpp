// expect: reversible model: needs .void abandon
#include "archetypes/executor.hpp"
#include "mutants/executor.hpp"

#ifdef OPTPIPE_CONTROL
using subject = optpipe::testing::archetype::reversible_model;
#else
using subject = optpipe::testing::mutant::reversible_without_abandon;
#endif
static_assert(optpipe::execution::check_reversible_model<subject, optpipe::testing::archetype::lane>());
