// expect: no match(ing function|ing constructor).*graph
#include "optpipe/pipeline/graph.hpp"

namespace placement = optpipe::placement;
#ifdef OPTPIPE_CONTROL
const optpipe::graph<2, 2, placement::loop<>> shape{placement::loop<>{2}};
#else
const optpipe::graph<optpipe::dynamic, 2, placement::loop<>> shape{placement::loop<>{2}};
#endif
