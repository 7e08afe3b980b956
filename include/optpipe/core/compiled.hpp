#pragma once

#include "optpipe/core/standard.hpp"

/// OPTPIPE_INLINE marks the functions that are compiled once in the library of `optpipe::compiled`. OPTPIPE_INLINE
/// functions are defined where OPTPIPE_DEFINES(unit) is 1. Without OPTPIPE_COMPILED, OPTPIPE_DEFINES(unit) is 1
/// everywhere. With OPTPIPE_COMPILED, OPTPIPE_DEFINES(unit) is 1 in a single source of the library. In a header,
/// OPTPIPE_DEFINES(unit) also guards includes for the definitions.
#if defined(OPTPIPE_COMPILED)
#define OPTPIPE_INLINE
#define OPTPIPE_DEFINES(unit) (OPTPIPE_COMPILING == OPTPIPE_UNIT_##unit)
#define OPTPIPE_UNIT_core 1
#define OPTPIPE_UNIT_pipeline 2
#define OPTPIPE_UNIT_schedule 3
#define OPTPIPE_UNIT_programs 4
#define OPTPIPE_UNIT_milp 5
#define OPTPIPE_UNIT_formulation 6
#define OPTPIPE_UNIT_planner 7
#define OPTPIPE_UNIT_execution 8
#define OPTPIPE_UNIT_io 9
#define OPTPIPE_UNIT_online 10
#if !defined(OPTPIPE_COMPILING)
#define OPTPIPE_COMPILING 0
#endif
#else
#define OPTPIPE_INLINE inline
#define OPTPIPE_DEFINES(unit) 1
#endif
