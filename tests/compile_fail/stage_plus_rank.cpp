// expect: (no match for .*operator\+|invalid operands to binary expression)
#include "optpipe/core/index.hpp"

#ifdef OPTPIPE_CONTROL
constexpr auto sum = optpipe::stage{1}.value() + optpipe::rank{1}.value();
#else
constexpr auto sum = optpipe::stage{1} + optpipe::rank{1};
#endif
