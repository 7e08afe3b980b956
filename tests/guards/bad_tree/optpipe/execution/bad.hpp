#include <mpi.h>                  // expect: execution may not include MPI
#include <nccl.h>                 // expect: execution may not include NCCL
#include <nvtx3/nvtx3.hpp>        // expect: execution may not include CUDA
#include <optpipe/milp.hpp>       // expect: execution may not include milp
#include <optpipe/planner.hpp>    // expect: execution may not include planner
#include <optpipe/schedule.hpp>
#include <thread>
