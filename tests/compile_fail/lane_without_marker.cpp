// expect: lane: needs a movable type .marker
#include "archetypes/executor.hpp"
#include "mutants/executor.hpp"

#ifdef OPTPIPE_CONTROL
using subject = optpipe::testing::archetype::lane;
#else
using subject = optpipe::testing::mutant::lane_without_marker;
#endif
static_assert(optpipe::execution::check_lane<subject>());
