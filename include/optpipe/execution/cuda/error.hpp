#pragma once

#include "optpipe/core/error.hpp"

#include <cuda_runtime_api.h>

#include <string>
#include <string_view>

namespace optpipe::cuda {

/// A call of the CUDA runtime or driver that failed.
class error : public optpipe::error {
public:
    error(cudaError_t code, std::string_view call)
        : optpipe::error{std::string{call} + ": " + cudaGetErrorString(code)}, code_{code} {}
    [[nodiscard]] cudaError_t code() const { return code_; }

private:
    cudaError_t code_;
};

/// Throws unless the call succeeded. Takes a runtime error that doesn't last off the thread, so that it isn't blamed on
/// the next call.
inline void check(cudaError_t status, std::string_view call) {
    if (status == cudaSuccess) return;
    static_cast<void>(cudaGetLastError());
    throw error{status, call};
}

/// Throws if an error of this thread is left that nobody has read, as a launch leaves one whose status wasn't looked
/// at.
inline void check_last_error(std::string_view what) {
    const auto left = cudaPeekAtLastError();
    if (left != cudaErrorNotReady) return check(left, what);
    static_cast<void>(cudaGetLastError()); // somebody asked an event, which is no error
}

namespace detail {

/// Of a stream or an event: whether it is over. Errors of earlier launches stay where they are.
[[nodiscard]] inline bool is_over(cudaError_t status, std::string_view call) {
    if (status != cudaErrorNotReady) return check(status, call), true;
    if (cudaPeekAtLastError() == cudaErrorNotReady) static_cast<void>(cudaGetLastError());
    return false;
}

} // namespace detail

} // namespace optpipe::cuda
