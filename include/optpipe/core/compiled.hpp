#pragma once

#include "optpipe/core/standard.hpp"

/// Functions that optpipe::compiled has in its library are OPTPIPE_INLINE, and defined where OPTPIPE_IS_DEFINED is 1:
/// everywhere, or (OPTPIPE_COMPILED) in the library's own sources (OPTPIPE_COMPILING).
#if defined(OPTPIPE_COMPILED)
#define OPTPIPE_INLINE
#else
#define OPTPIPE_INLINE inline
#endif

#if !defined(OPTPIPE_COMPILED) || defined(OPTPIPE_COMPILING)
#define OPTPIPE_IS_DEFINED 1
#else
#define OPTPIPE_IS_DEFINED 0
#endif
