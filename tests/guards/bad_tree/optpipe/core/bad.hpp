#include <sys/types.h>                     // expect: only core/system.hpp may include headers of the operating system
#include <unistd.h>                        // expect: only core/system.hpp may include headers of the operating system
#include <vector>

#include "../pipeline/graph.hpp"           // expect: include it as <optpipe/...>
#include "index.hpp"                       // expect: include it as <optpipe/...>
#include <optpipe/core/../milp/model.hpp>  // expect: include it as <optpipe/...>
#include OPTPIPE_HEADER                    // expect: include it as <optpipe/...>
#include <Eigen/Core>                      // expect: core may not include Eigen
#include <boost/graph/adjacency_list.hpp>  // expect: not a header of a package that any layer may use
#include <optpipe/core/index.hpp>
#include <optpipe/optpipe.hpp>       // expect: core may not include optpipe
#include <optpipe/pipeline.hpp>      // expect: core may not include pipeline
#include <optpipe/schedule/operation.hpp> // expect: core may not include schedule
#include <optpipe/version.hpp>

// inline int ones(unsigned x) { return __builtin_popcount(x); }
inline int ones(unsigned x) { return __builtin_popcount(x); } // expect: not standard C++
