#pragma once

/// Includes all parts of OptPipe that the build supports. JSON is included if the target `optpipe::io` found
/// nlohmann_json (OPTPIPE_HAS_JSON). The solver and `plan()` are included if `optpipe::milp` found Eigen and oneTBB
/// (OPTPIPE_HAS_MILP). Support for ranks that are threads is always included. Without CMake, the solver is included if
/// the compiler finds the headers of both packages. Define OPTPIPE_HAS_MILP as 0 to leave out the solver, and
/// OPTPIPE_HAS_JSON as 1 to include JSON. Executors on CUDA, NCCL and MPI are in `optpipe/execution/`.

#include "optpipe/core.hpp"
#include "optpipe/execution.hpp"
#include "optpipe/io.hpp"
#include "optpipe/pipeline.hpp"
#include "optpipe/program.hpp"
#include "optpipe/schedule.hpp"
// With OPTPIPE_COMPILED, the build of the library decides whether the solver is available.
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
