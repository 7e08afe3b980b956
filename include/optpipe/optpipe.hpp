#pragma once

/// All parts of OptPipe that the build supports: JSON if the target `optpipe::io` found nlohmann_json
/// (OPTPIPE_HAS_JSON), the solver and `plan()` if `optpipe::milp` found Eigen and oneTBB (OPTPIPE_HAS_MILP), and ranks
/// that are threads. Without CMake, these macros must be defined by hand. Executors on CUDA, NCCL and MPI are in
/// `optpipe/execution/`.

#include "optpipe/core.hpp"
#include "optpipe/execution.hpp"
#include "optpipe/io.hpp"
#include "optpipe/pipeline.hpp"
#include "optpipe/program.hpp"
#include "optpipe/schedule.hpp"
#if defined(OPTPIPE_HAS_MILP)
#include "optpipe/formulation.hpp"
#include "optpipe/milp.hpp"
#include "optpipe/planner.hpp"
#if defined(OPTPIPE_HAS_JSON)
#include "optpipe/online.hpp"
#endif
#endif
