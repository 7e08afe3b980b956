// expect: transport: needs .void exchange
#include "mutants/executor.hpp"
#include "optpipe/testing/executor.hpp"

#ifdef OPTPIPE_CONTROL
using subject = optpipe::testing::archetype::transport;
#else
using subject = optpipe::testing::mutant::transport_without_exchange;
#endif
static_assert(optpipe::execution::check_transport<subject, optpipe::testing::archetype::lane>());
