#pragma once

/// Plans again while the training runs. Needs the planner and JSON, because ranks send each other plans as JSON.

#include "optpipe/online/controller.hpp"
#include "optpipe/online/online_run.hpp"
#include "optpipe/online/options.hpp"
#include "optpipe/online/step_planner.hpp"
#include "optpipe/online/step_run.hpp"
