#include <cuda_runtime.h>
#include <nccl.h> // expect: execution/cuda may not include NCCL
