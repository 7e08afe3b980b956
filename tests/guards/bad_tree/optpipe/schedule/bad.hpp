#include <nlohmann/json.hpp>             // expect: schedule may not include nlohmann
#include <optpipe/execution/run.hpp>     // expect: schedule may not include execution
#include <optpipe/formulation/order.hpp> // expect: schedule may not include formulation
#include <optpipe/io/text.hpp>           // expect: schedule may not include io
#include <optpipe/pipeline/graph.hpp>
#include <tbb/parallel_for.h>            // expect: schedule may not include TBB
#include <unsupported/Eigen/SparseExtra> // expect: schedule may not include Eigen
#include "optpipe/program/ir.hpp" // expect: schedule may not include program
