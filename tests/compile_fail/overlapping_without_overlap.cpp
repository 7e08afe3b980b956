// expect: overlapping stage model: needs .void overlap
#include "mutants/executor.hpp"
#include "archetypes/executor.hpp"

#ifdef OPTPIPE_CONTROL
using subject = optpipe::testing::archetype::overlapping_stage_model;
#else
using subject = optpipe::testing::mutant::overlapping_without_overlap;
#endif
static_assert(optpipe::execution::check_overlapping_stage_model<subject, optpipe::testing::archetype::lane>());
