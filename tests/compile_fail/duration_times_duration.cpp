// expect: (no match for .*operator\*|invalid operands to binary expression)
#include "optpipe/core/quantity.hpp"

using namespace optpipe::literals;
#ifdef OPTPIPE_CONTROL
constexpr auto product = 2.0 * 1_ms;
#else
constexpr auto product = 2_ms * 1_ms;
#endif
