#include <Eigen/Core>
#include <oneapi/tbb/task_group.h>   // expect: formulation may not include TBB
#include <optpipe/milp/model.hpp>
#include <optpipe/planner/plan.hpp>  // expect: formulation may not include planner
