#pragma once

/// All parts of OptPipe that the build supports: JSON if the target `optpipe::io` found nlohmann_json
/// (OPTPIPE_HAS_JSON), the solver and `plan()` if `optpipe::milp` found Eigen and oneTBB (OPTPIPE_HAS_MILP), and ranks
/// that are threads. Without CMake, the solver is there if the compiler finds the headers of both packages; define
/// OPTPIPE_HAS_MILP as 0 to leave it out, and OPTPIPE_HAS_JSON as 1 for JSON. Executors on CUDA, NCCL and MPI are in
/// `optpipe/execution/`.

#include "optpipe/core.hpp"
#include "optpipe/execution.hpp"
#include "optpipe/io.hpp"
#include "optpipe/pipeline.hpp"
#include "optpipe/program.hpp"
#include "optpipe/schedule.hpp"
// With OPTPIPE_COMPILED, the build of the library decides whether the solver is there.
#if !defined(OPTPIPE_HAS_MILP) && !defined(OPTPIPE_COMPILED) && __has_include(<Eigen/SparseCore>) && \
    __has_include(<oneapi/tbb/task_arena.h>)
#define OPTPIPE_HAS_MILP 1
#endif
#if defined(OPTPIPE_HAS_MILP) && OPTPIPE_HAS_MILP
#include "optpipe/formulation.hpp"
#include "optpipe/milp.hpp"
#include "optpipe/planner.hpp"
#if defined(OPTPIPE_HAS_JSON)
#include "optpipe/online.hpp"
#endif
#endif
