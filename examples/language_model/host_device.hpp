#pragma once

/// For functions that nvcc compiles for host and device, and others for the host alone.
#ifdef __CUDACC__
#define OPTPIPE_HOST_DEVICE __host__ __device__
#else
#define OPTPIPE_HOST_DEVICE
#endif

/// For what runs on the device where nvcc compiles it, and in loops on the host elsewhere.
#ifdef __CUDACC__
#define OPTPIPE_KERNEL __device__
#else
#define OPTPIPE_KERNEL
#endif
