#pragma once

/// Training that plans again while it runs. Needs the planner and JSON. Ranks send each other plans as JSON.

#include "optpipe/online/controller.hpp"
#include "optpipe/online/online_run.hpp"
#include "optpipe/online/options.hpp"
#include "optpipe/online/step_planner.hpp"
#include "optpipe/online/step_run.hpp"
