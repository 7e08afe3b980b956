// expect: (contract_violated|must be initialized by a constant expression)
#include "optpipe/pipeline/graph.hpp"

#ifdef OPTPIPE_CONTROL
constexpr optpipe::graph<4, 8> shape{4, 8};
#else
constexpr optpipe::graph<4, 8> shape{4, 9};
#endif
