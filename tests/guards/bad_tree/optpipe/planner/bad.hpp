#include <cuda_runtime.h>             // expect: planner may not include CUDA
#include <optpipe/execution/run.hpp>  // expect: planner may not include execution
#include <optpipe/formulation.hpp>
#include <tbb/task_group.h>            // expect: planner may not include TBB
