// expect: (no match for .*operator\+|invalid operands to binary expression)
#include "optpipe/core/quantity.hpp"

using namespace optpipe::literals;
#ifdef OPTPIPE_CONTROL
constexpr auto sum = 1_ms + 2_ms;
#else
constexpr auto sum = 1_ms + 2_gb;
#endif
