#pragma once

/// All of OptPipe that the build at hand has: JSON where the target `optpipe::io` found nlohmann_json
/// (OPTPIPE_HAS_JSON), the solver and `plan()` where `optpipe::milp` found Eigen and oneTBB (OPTPIPE_HAS_MILP), ranks
/// that are threads. Without CMake these macros have to be defined. What runs on CUDA, NCCL or MPI is in
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
