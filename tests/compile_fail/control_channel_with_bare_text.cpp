// expect: control channel: needs .std::optional<std::string> next_published
#include "archetypes/executor.hpp"
#include "mutants/executor.hpp"

#ifdef OPTPIPE_CONTROL
using subject = optpipe::testing::archetype::control_channel;
#else
using subject = optpipe::testing::mutant::control_channel_with_bare_text;
#endif
static_assert(optpipe::execution::check_control_channel<subject>());
