// expect: transport: needs .void exchange
#include "archetypes/executor.hpp"
#include "mutants/executor.hpp"

#ifdef OPTPIPE_CONTROL
using subject = optpipe::testing::archetype::transport;
#else
using subject = optpipe::testing::mutant::transport_without_exchange;
#endif
static_assert(optpipe::execution::check_transport<subject, optpipe::testing::archetype::lane>());
