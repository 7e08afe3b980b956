#pragma once

#include "optpipe/core/error.hpp"

#include <cuda_runtime_api.h>

#include <string>
#include <string_view>

namespace optpipe::cuda {

/// A failed call of the CUDA runtime or driver.
class error : public optpipe::error {
public:
    error(cudaError_t code, std::string_view call)
        : optpipe::error{std::string{call} + ": " + cudaGetErrorString(code)}, code_{code} {}
    [[nodiscard]] cudaError_t code() const { return code_; }

private:
    cudaError_t code_;
};

/// Throws unless the call succeeded. Clears the thread's runtime error unless the error is sticky.
inline void check(cudaError_t status, std::string_view call) {
    if (status == cudaSuccess) return;
    static_cast<void>(cudaGetLastError());
    throw error{status, call};
}

/// Throws if this thread has a CUDA error that nobody has read.
inline void check_last_error(std::string_view what) {
    const auto left = cudaPeekAtLastError();
    if (left != cudaErrorNotReady) return check(left, what);
    static_cast<void>(cudaGetLastError()); // clears the status that a query of running work leaves
}

namespace detail {

/// Whether a stream or event has finished, given its query's status. Errors of earlier launches stay pending.
[[nodiscard]] inline bool is_over(cudaError_t status, std::string_view call) {
    if (status != cudaErrorNotReady) return check(status, call), true;
    if (cudaPeekAtLastError() == cudaErrorNotReady) static_cast<void>(cudaGetLastError());
    return false;
}

} // namespace detail

} // namespace optpipe::cuda
