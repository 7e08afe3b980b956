// expect: (conversion from .*double.* to non-scalar type .*|no viable conversion from .double. to .*)duration
#include "optpipe/pipeline/costs.hpp"

#ifdef OPTPIPE_CONTROL
constexpr optpipe::duration step{1.0};
#else
constexpr optpipe::duration step = 1.0;
#endif
