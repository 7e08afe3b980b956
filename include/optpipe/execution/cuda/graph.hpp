#pragma once

#include "optpipe/execution/cuda/error.hpp"
#include "optpipe/execution/cuda/stream.hpp"

#include <cuda_runtime_api.h>

#include <utility>

namespace optpipe::cuda {

/// The work of an entire step, launched by one call. Destroy a graph with NCCL messages before its communicators.
/// `executor::capture` ensures that such graphs are destroyed first.
class graph {
public:
    /// Captures the work that `issue()` puts into `origin` and into streams that wait for `origin`. At the end,
    /// `origin` must wait for events of all streams with captured work. If `issue` throws, the capture ends and the
    /// exception is rethrown.
    template <class Issue> static graph capture(stream_ref origin, Issue&& issue) {
        check(cudaStreamBeginCapture(origin.native(), cudaStreamCaptureModeThreadLocal), "cudaStreamBeginCapture");
        cudaGraph_t captured = nullptr;
        try {
            std::forward<Issue>(issue)();
        } catch (...) {
            static_cast<void>(cudaStreamEndCapture(origin.native(), &captured));
            static_cast<void>(cudaGetLastError());
            if (captured) static_cast<void>(cudaGraphDestroy(captured));
            throw;
        }
        check(cudaStreamEndCapture(origin.native(), &captured), "cudaStreamEndCapture");
        return graph{captured};
    }
    graph(graph&& other) noexcept : executable_{std::exchange(other.executable_, nullptr)} {}
    graph& operator=(graph&& other) noexcept {
        std::swap(executable_, other.executable_);
        return *this;
    }
    ~graph() {
        if (executable_) static_cast<void>(cudaGraphExecDestroy(executable_));
    }

    void launch(stream_ref where) { check(cudaGraphLaunch(executable_, where.native()), "cudaGraphLaunch"); }

private:
    explicit graph(cudaGraph_t captured) {
        // The graph's nodes get the priorities of their streams.
        const auto status = cudaGraphInstantiate(&executable_, captured, cudaGraphInstantiateFlagUseNodePriority);
        static_cast<void>(cudaGraphDestroy(captured));
        check(status, "cudaGraphInstantiate");
    }

    cudaGraphExec_t executable_ = nullptr;
};

} // namespace optpipe::cuda
