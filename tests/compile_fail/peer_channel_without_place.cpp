// expect: peer channel: needs .rank self.. const.
#include "archetypes/executor.hpp"
#include "mutants/executor.hpp"

#ifdef OPTPIPE_CONTROL
using subject = optpipe::testing::archetype::peer_channel;
#else
using subject = optpipe::testing::mutant::peer_channel_without_place;
#endif
static_assert(optpipe::execution::check_peer_channel<subject>());
