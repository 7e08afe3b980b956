#include <sys/types.h>
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
