#pragma once

#include "optpipe/execution/cuda/lane.hpp"
#include "optpipe/execution/cuda/stream.hpp"

namespace optpipe::cuda {

/// A second stream beside the lane's stream, for the backward of a pair. Belongs to the device that is current at
/// construction. A model has one side stream per rank. The side stream must exist until all its work has ended. Graphs
/// capture a side stream together with the lane's stream.
///
///     void overlap(cuda::lane& on, const forward_task& f, const backward_task& b) {
///         side.fork(on);
///         // Kernels of f go into on.stream(), those of b into side.stream(), in the order in which they should start.
///         side.join(on);
///     }
class side_stream {
public:
    [[nodiscard]] stream_ref stream() const { return stream_; }
    /// Later work in this stream starts after the work now in the lane.
    void fork(lane& on) {
        on.stream().record(begun_);
        stream_.wait(begun_);
    }
    /// Later work in the lane starts after the work now in this stream.
    void join(lane& on) {
        stream_.record(ended_);
        on.stream().wait(ended_);
    }

private:
    cuda::stream stream_{};
    event begun_{};
    event ended_{};
};

} // namespace optpipe::cuda
