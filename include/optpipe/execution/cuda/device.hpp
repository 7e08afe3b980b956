#pragma once

#include "optpipe/execution/cuda/error.hpp"

#include <cuda_runtime_api.h>

namespace optpipe::cuda {

/// 0 where there is no GPU, or no driver that this toolkit can use.
[[nodiscard]] inline int device_count() {
    int count = 0;
    const auto status = cudaGetDeviceCount(&count);
    if (status == cudaErrorNoDevice || status == cudaErrorInsufficientDriver) {
        static_cast<void>(cudaGetLastError());
        return 0;
    }
    check(status, "cudaGetDeviceCount");
    return count;
}

[[nodiscard]] inline int attribute(int device, cudaDeviceAttr which) {
    int value = 0;
    check(cudaDeviceGetAttribute(&value, which, device), "cudaDeviceGetAttribute");
    return value;
}

/// Copies that a device can have under way beside its kernels: 2 are one for each direction.
[[nodiscard]] inline int copy_engines(int device) { return attribute(device, cudaDevAttrAsyncEngineCount); }

/// Makes a device the thread's current one, for as long as this lives.
class current_device {
public:
    explicit current_device(int device) {
        check(cudaGetDevice(&before_), "cudaGetDevice");
        if (before_ != device) check(cudaSetDevice(device), "cudaSetDevice");
    }
    current_device(const current_device&) = delete;
    current_device& operator=(const current_device&) = delete;
    ~current_device() { static_cast<void>(cudaSetDevice(before_)); }

private:
    int before_ = 0;
};

} // namespace optpipe::cuda
