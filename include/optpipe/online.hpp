#pragma once

/// Training that plans again while it goes on. Needs the planner and JSON, as plans travel between ranks.

#include "optpipe/online/controller.hpp"
#include "optpipe/online/online_run.hpp"
#include "optpipe/online/options.hpp"
