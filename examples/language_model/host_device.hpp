#pragma once

/// Marks functions that nvcc compiles for host and device, and other compilers for the host alone.
#ifdef __CUDACC__
#define OPTPIPE_HOST_DEVICE __host__ __device__
#else
#define OPTPIPE_HOST_DEVICE
#endif

/// Marks functions that run on the device if nvcc compiles them, and in loops on the host otherwise.
#ifdef __CUDACC__
#define OPTPIPE_KERNEL __device__
#else
#define OPTPIPE_KERNEL
#endif
