#pragma once

#include "optpipe/execution/cuda/error.hpp"

#include <cuda_runtime_api.h>

#include <set>

namespace optpipe::cuda {

/// The number of devices. Returns 0 without a GPU or a usable driver.
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

/// The number of copies that can run beside kernels. If 2, one copy in each direction.
[[nodiscard]] inline int copy_engines(int device) { return attribute(device, cudaDevAttrAsyncEngineCount); }

/// Makes a device the thread's current device while this object exists.
class current_device {
public:
    explicit current_device(int device) {
        check(cudaGetDevice(&before_), "cudaGetDevice");
        is_other_ = before_ != device;
        if (is_other_) check(cudaSetDevice(device), "cudaSetDevice");
    }
    current_device(const current_device&) = delete;
    current_device& operator=(const current_device&) = delete;
    ~current_device() {
        if (is_other_) static_cast<void>(cudaSetDevice(before_));
    }

private:
    int before_ = 0;
    bool is_other_ = false;
};

/// Lets the devices in `devices` access each other's memory. Copies between devices without peer access go through the
/// host.
inline void enable_peer_access(const std::set<int>& devices) {
    for (const int from : devices)
        for (const int to : devices) {
            int can = 0;
            if (from != to) check(cudaDeviceCanAccessPeer(&can, from, to), "cudaDeviceCanAccessPeer");
            if (can == 0) continue;
            const current_device here{from};
            const auto status = cudaDeviceEnablePeerAccess(to, 0);
            if (status == cudaErrorPeerAccessAlreadyEnabled)
                static_cast<void>(cudaGetLastError());
            else
                check(status, "cudaDeviceEnablePeerAccess");
        }
}

} // namespace optpipe::cuda
