// expect: peer channel: needs .std::string receive
#include "archetypes/executor.hpp"
#include "mutants/executor.hpp"

#ifdef OPTPIPE_CONTROL
using subject = optpipe::testing::archetype::peer_channel;
#else
using subject = optpipe::testing::mutant::peer_channel_without_wait;
#endif
static_assert(optpipe::execution::check_peer_channel<subject>());
