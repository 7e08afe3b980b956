#include <Eigen/SparseLU>
#include <optpipe/core/tolerance.hpp>
#include <optpipe/pipeline/graph.hpp> // expect: milp may not include pipeline
#include <optpipe/schedule.hpp>       // expect: milp may not include schedule
#include <tbb/task_group.h>           // expect: milp may not include TBB
