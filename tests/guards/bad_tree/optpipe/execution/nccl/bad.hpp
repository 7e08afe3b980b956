#include <cuda_runtime.h>
#include <mpi.h> // expect: execution/nccl may not include MPI
#include <nccl.h>
