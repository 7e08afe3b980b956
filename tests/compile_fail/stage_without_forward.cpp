// expect: stage model: needs .void forward
#include "mutants/executor.hpp"
#include "optpipe/testing/executor.hpp"

#ifdef OPTPIPE_CONTROL
using subject = optpipe::testing::archetype::stage_model;
#else
using subject = optpipe::testing::mutant::stage_without_forward;
#endif
static_assert(optpipe::execution::check_stage_model<subject, optpipe::testing::archetype::lane>());
