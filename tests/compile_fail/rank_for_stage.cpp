// expect: (cannot convert .*|no viable conversion from .*)rank_tag.* to .*stage_tag
#include "optpipe/pipeline/graph.hpp"

constexpr optpipe::graph<4, 8> shape;
#ifdef OPTPIPE_CONTROL
constexpr auto where = shape.rank_of(optpipe::stage{2});
#else
constexpr auto where = shape.rank_of(optpipe::rank{2});
#endif
