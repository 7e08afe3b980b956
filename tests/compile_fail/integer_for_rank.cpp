// expect: (conversion from .*int.* to non-scalar type .*|no viable conversion from .int. to .*)rank
#include "optpipe/core/index.hpp"

#ifdef OPTPIPE_CONTROL
constexpr optpipe::rank first{0};
#else
constexpr optpipe::rank first = 0;
#endif
