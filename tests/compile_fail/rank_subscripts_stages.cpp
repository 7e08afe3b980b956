// expect: (no match for .*operator|no viable overloaded operator).*stage_tag
#include "optpipe/core/container.hpp"

constexpr optpipe::per_stage<int, 4> layers(4, 8);
#ifdef OPTPIPE_CONTROL
constexpr int here = layers[optpipe::stage{2}];
#else
constexpr int here = layers[optpipe::rank{2}];
#endif
