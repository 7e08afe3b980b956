#pragma once

#include "optpipe/planner/board.hpp"
#include "optpipe/planner/cache.hpp"
#include "optpipe/planner/canonical.hpp"
#include "optpipe/planner/part.hpp"
#include "optpipe/planner/plan.hpp"
#include "optpipe/planner/plan_options.hpp"
#include "optpipe/planner/plan_result.hpp"
#include "optpipe/planner/race.hpp"
#include "optpipe/planner/rounds.hpp"
