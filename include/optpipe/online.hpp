#pragma once

/// Training that plans again while it runs. Needs the planner, and JSON, in which plans are sent between ranks.

#include "optpipe/online/controller.hpp"
#include "optpipe/online/online_run.hpp"
#include "optpipe/online/options.hpp"
#include "optpipe/online/step_planner.hpp"
