#pragma once

#include <optpipe/core/error.hpp>
#include <optpipe/core/index.hpp>
#include <optpipe/execution/cuda/device.hpp>
#include <optpipe/execution/cuda/green_contexts.hpp>
#include <optpipe/execution/cuda/options.hpp>
#include <optpipe/execution/cuda/stream.hpp>
#include <optpipe/program/ir.hpp>

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

namespace gpu_bench {

/// The multiprocessors of virtual ranks: all of them for each rank, or a part for each, by green contexts.
class partition {
public:
    partition(std::size_t ranks, bool is_divided) {
        if (!is_divided) return;
        const int all = optpipe::cuda::attribute(0, cudaDevAttrMultiProcessorCount);
        // On Hopper, parts are multiples of 8.
        const auto least = static_cast<unsigned>(all) / static_cast<unsigned>(ranks) / 8U * 8U;
        if (least == 0)
            throw optpipe::error{std::to_string(all) + " multiprocessors can't be divided among " +
                                 std::to_string(ranks) + " ranks"};
        contexts_ = std::make_unique<optpipe::cuda::green_contexts>(0, static_cast<unsigned>(ranks), least);
        for (std::size_t r = 0; r < ranks; ++r)
            compute_.push_back(contexts_->make_stream(r));
    }

    /// Number per rank; 0 means all.
    [[nodiscard]] int multiprocessors() const {
        return contexts_ ? static_cast<int>(contexts_->multiprocessors(0)) : 0;
    }
    [[nodiscard]] optpipe::cuda::stream_source streams() const {
        if (!contexts_) return {};
        return [this](optpipe::rank r, optpipe::lane_kind kind) {
            return kind == optpipe::lane_kind::compute ? compute_[r.position()].native() : nullptr;
        };
    }

private:
    // Streams are destroyed before their contexts.
    std::unique_ptr<optpipe::cuda::green_contexts> contexts_;
    std::vector<optpipe::cuda::stream> compute_;
};

} // namespace gpu_bench
