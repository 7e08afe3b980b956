// expect: (contract_violated|must be initialized by a constant expression)
#include "optpipe/core/outcome.hpp"

#ifdef OPTPIPE_CONTROL
constexpr optpipe::outcome<int> answer{42};
#else
constexpr optpipe::outcome<int> answer{optpipe::refusal{}};
#endif
constexpr int value = *answer;
