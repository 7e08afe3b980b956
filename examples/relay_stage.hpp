#pragma once

#include <optpipe/execution.hpp>
#include <optpipe/execution/cuda/lane.hpp>
#include <optpipe/execution/cuda/slab.hpp>

#include <cuda_runtime_api.h>

#include <cstddef>
#include <span>

/// A stage of a "model" without arithmetic, on a GPU: it passes on its input, and stashes it until the weight gradient
/// checks it. Messages and stashes have `bytes` bytes each.
class relay_stage {
public:
    relay_stage(std::size_t microbatches, std::size_t bytes)
        : microbatches_{microbatches}, bytes_{bytes}, seen_{microbatches} {}

    void forward(optpipe::cuda::lane& on, const optpipe::execution::forward_task& t) {
        const auto stash = optpipe::execution::contiguous(t.kept);
        if (t.input.empty())
            optpipe::cuda::check(
                cudaMemsetAsync(stash.data(), 1 + static_cast<int>(t.microbatch.value()), bytes_, on.stream().native()),
                "cudaMemsetAsync");
        else
            copy(on, stash, t.input);
        if (!t.output.empty()) copy(on, t.output, stash);
    }
    void backward_input(optpipe::cuda::lane& on, const optpipe::execution::backward_task& t) {
        if (!t.output.empty()) copy(on, t.output, t.input.empty() ? optpipe::execution::contiguous(t.kept) : t.input);
    }
    void backward_weight(optpipe::cuda::lane& on, const optpipe::execution::weight_task& t) {
        on.stream().copy(seen_.memory().data() + t.microbatch.position(), optpipe::execution::contiguous(t.kept).data(),
                         1, cudaMemcpyDeviceToHost);
    }
    /// Whether each microbatch of the last step arrived with the data of the first stage.
    [[nodiscard]] bool has_seen_all() const {
        for (std::size_t m = 0; m < microbatches_; ++m)
            if (std::to_integer<std::size_t>(seen_.memory()[m]) != m + 1) return false;
        return true;
    }

private:
    void copy(optpipe::cuda::lane& on, std::span<std::byte> to, std::span<const std::byte> from) const {
        on.stream().copy(to.data(), from.data(), bytes_, cudaMemcpyDeviceToDevice);
    }

    std::size_t microbatches_;
    std::size_t bytes_;
    optpipe::cuda::pinned_slab seen_;
};
