#pragma once

/// Makes and runs programs. Executors that need a package are in `optpipe/execution/<package>/`.

#include "optpipe/execution/clock_time.hpp"
#include "optpipe/execution/copy_engine.hpp"
#include "optpipe/execution/device_mesh.hpp"
#include "optpipe/execution/error.hpp"
#include "optpipe/execution/executor.hpp"
#include "optpipe/execution/lane.hpp"
#include "optpipe/execution/measured.hpp"
#include "optpipe/execution/memory.hpp"
#include "optpipe/execution/post_validation.hpp"
#include "optpipe/execution/run.hpp"
#include "optpipe/execution/stage_model.hpp"
#include "optpipe/execution/threads/executor.hpp"
#include "optpipe/execution/threads/options.hpp"
#include "optpipe/execution/threads/run.hpp"
#include "optpipe/execution/transport.hpp"
#include "optpipe/program/check.hpp"
#include "optpipe/program/lower.hpp"
