// expect: stage model: needs .void backward_input
#include "archetypes/executor.hpp"
#include "mutants/executor.hpp"

#ifdef OPTPIPE_CONTROL
using subject = optpipe::testing::archetype::stage_model;
#else
using subject = optpipe::testing::mutant::stage_without_backward_input;
#endif
static_assert(optpipe::execution::check_stage_model<subject, optpipe::testing::archetype::lane>());
