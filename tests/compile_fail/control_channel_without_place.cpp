// expect: control channel: needs .rank self.. const.
#include "archetypes/executor.hpp"
#include "mutants/executor.hpp"

#ifdef OPTPIPE_CONTROL
using subject = optpipe::testing::archetype::control_channel;
#else
using subject = optpipe::testing::mutant::control_channel_without_place;
#endif
static_assert(optpipe::execution::check_control_channel<subject>());
