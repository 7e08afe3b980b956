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

} // namespace optpipe::cuda
