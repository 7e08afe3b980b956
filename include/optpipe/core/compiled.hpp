#pragma once

#include "optpipe/core/standard.hpp"

/// Functions that optpipe::compiled has in its library are OPTPIPE_INLINE, and defined where OPTPIPE_DEFINES(unit) is
/// 1: everywhere, or (OPTPIPE_COMPILED) in the one source of the library that sets OPTPIPE_COMPILING_<unit>. Their
/// headers include what only definitions need under that condition.
#if defined(OPTPIPE_COMPILED)
#define OPTPIPE_INLINE
#define OPTPIPE_DEFINES(unit) (OPTPIPE_COMPILING_##unit)
#else
#define OPTPIPE_INLINE inline
#define OPTPIPE_DEFINES(unit) 1
#endif
