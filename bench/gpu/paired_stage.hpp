#pragma once

#include "../../examples/relay_stage.hpp"
#include <optpipe/core/contract.hpp>
#include <optpipe/execution/cuda/lane.hpp>
#include <optpipe/execution/cuda/side_stream.hpp>
#include <optpipe/execution/cuda/slab.hpp>
#include <optpipe/execution/cuda/stream.hpp>
#include <optpipe/execution/stage_model.hpp>

#include <cuda_runtime_api.h>

#include <cstddef>
#include <span>

namespace gpu_bench {

/// What the operations of a `paired_stage` do: rounds of computation, and bytes that a forward sends to the host and a
/// backward fetches from there.
struct paired_work {
    std::size_t forward = 1;
    std::size_t backward_input = 1;
    std::size_t backward_weight = 1;
    std::size_t bytes = 1;
};

/// A stage that computes, and moves data as an exchange between ranks would: a forward sends its result, and a backward
/// starts with what it fetches. In a pair, the copy of each part runs beside the computation of the other. Passes
/// messages on as `relay_stage` does.
///
/// `compute(stream, rounds, memory, value)` puts computation into the stream that ends with `value` in the first byte
/// of the memory on the device.
template <class Compute> class paired_stage {
    using forward_task = optpipe::execution::forward_task;
    using backward_task = optpipe::execution::backward_task;
    using weight_task = optpipe::execution::weight_task;

public:
    paired_stage(Compute compute, const paired_work& work, std::size_t microbatches, std::size_t message_bytes)
        : compute_{compute}, work_{work}, relay_{microbatches, message_bytes}, device_{2 * work.bytes},
          host_{2 * work.bytes} {
        OPTPIPE_EXPECT(work.bytes > 0, "paired_stage: a byte at least");
    }

    void forward(optpipe::cuda::lane& on, const forward_task& t) {
        compute_forward(on, t);
        send(on.stream());
    }
    void backward_input(optpipe::cuda::lane& on, const backward_task& t) {
        fetch(on.stream());
        compute_backward(on, t);
    }
    void backward_weight(optpipe::cuda::lane& on, const weight_task& t) {
        compute_(on.stream(), work_.backward_weight, fetched(), value_of(t.microbatch));
        relay_.backward_weight(on, t);
    }
    void overlap(optpipe::cuda::lane& on, const forward_task& f, const backward_task& b) {
        side_.fork(on);
        fetch(side_.stream());
        side_.stream().record(is_fetched_);
        compute_forward(on, f);
        on.stream().record(is_computed_);
        side_.stream().wait(is_computed_);
        send(side_.stream());
        on.stream().wait(is_fetched_);
        compute_backward(on, b);
        if (b.is_full) backward_weight(on, {.stage = b.stage, .microbatch = b.microbatch, .kept = b.kept});
        side_.join(on);
        ++pairs_;
    }

    /// Whether each microbatch of the last step came by, and the host has the result of the forward that ran last.
    [[nodiscard]] bool has_seen_all() const { return relay_.has_seen_all() && host_.memory()[0] == value_of(last_); }
    [[nodiscard]] std::size_t pairs() const { return pairs_; }

private:
    [[nodiscard]] static std::byte value_of(optpipe::microbatch m) {
        return static_cast<std::byte>(1 + m.position() % 255);
    }
    [[nodiscard]] std::span<std::byte> sent() { return device_.memory().first(work_.bytes); }
    [[nodiscard]] std::span<std::byte> fetched() { return device_.memory().subspan(work_.bytes, work_.bytes); }

    void compute_forward(optpipe::cuda::lane& on, const forward_task& t) {
        compute_(on.stream(), work_.forward, sent(), value_of(t.microbatch));
        relay_.forward(on, t);
        last_ = t.microbatch;
    }
    void compute_backward(optpipe::cuda::lane& on, const backward_task& t) {
        compute_(on.stream(), work_.backward_input, fetched(), value_of(t.microbatch));
        relay_.backward_input(on, t);
    }
    void send(optpipe::cuda::stream_ref on) {
        on.copy(host_.memory().data(), sent().data(), work_.bytes, cudaMemcpyDeviceToHost);
    }
    void fetch(optpipe::cuda::stream_ref on) {
        on.copy(fetched().data(), host_.memory().data() + work_.bytes, work_.bytes, cudaMemcpyHostToDevice);
    }

    Compute compute_;
    paired_work work_;
    relay_stage relay_;
    optpipe::cuda::device_slab device_;
    optpipe::cuda::pinned_slab host_;
    optpipe::cuda::side_stream side_{};
    optpipe::cuda::event is_fetched_{}, is_computed_{};
    optpipe::microbatch last_{};
    std::size_t pairs_ = 0;
};

} // namespace gpu_bench
