#pragma once

#include "optpipe/core/standard.hpp"

/// Marks the functions that `optpipe::compiled` holds in its library as OPTPIPE_INLINE. They are defined where
/// OPTPIPE_DEFINES(unit) is 1: everywhere, or, with OPTPIPE_COMPILED, only in the library's source that sets
/// OPTPIPE_COMPILING_<unit>. A header puts the includes that only its definitions need under the same condition.
#if defined(OPTPIPE_COMPILED)
#define OPTPIPE_INLINE
#define OPTPIPE_DEFINES(unit) (OPTPIPE_COMPILING_##unit)
#else
#define OPTPIPE_INLINE inline
#define OPTPIPE_DEFINES(unit) 1
#endif
