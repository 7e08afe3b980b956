// expect: peer channel: needs .void send
#include "mutants/executor.hpp"
#include "optpipe/testing/executor.hpp"

#ifdef OPTPIPE_CONTROL
using subject = optpipe::testing::archetype::peer_channel;
#else
using subject = optpipe::testing::mutant::peer_channel_without_send;
#endif
static_assert(optpipe::execution::check_peer_channel<subject>());
