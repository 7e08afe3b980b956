#pragma once

#include "optpipe/execution/cuda/error.hpp"
#include "optpipe/execution/cuda/executor.hpp"
#include "optpipe/execution/cuda/lane.hpp"
#include "optpipe/execution/cuda/options.hpp"
#include "optpipe/execution/cuda/stream.hpp"
#include "optpipe/execution/executor.hpp"
#include "optpipe/execution/libtorch/executor.hpp"
#include "optpipe/execution/libtorch/held_memory.hpp"
#include "optpipe/execution/libtorch/memory.hpp"
#include "optpipe/execution/libtorch/rank_model.hpp"
#include "optpipe/execution/stage_model.hpp"
#include "optpipe/program/ir.hpp"

#include <ATen/ATen.h>
#include <ATen/core/CachingHostAllocator.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

#include <memory>

namespace optpipe::libtorch {

/// A source of streams for the lanes of a CUDA executor (`cuda::options::streams`). The streams come from LibTorch's
/// pool. Streams that carry messages have high priority. The pool of a device has 32 streams of each priority. With
/// more than 32 lanes of a priority on a device, some lanes share a stream.
[[nodiscard]] inline cuda::stream_source pooled_streams() {
    return [](rank, lane_kind kind) { return c10::cuda::getStreamFromPool(carries_messages(kind)).stream(); };
}

/// The memory of stashes on a GPU. Copies are put into the current stream of the current device. Offloaded stashes take
/// pinned host memory, which LibTorch rounds up to powers of two. LibTorch's allocator reuses host memory only after
/// its copies have ended.
class cuda_memory final : public held_memory {
public:
    using held_memory::held_memory;
    void copy(const at::Tensor& to, const at::Tensor& from) override {
        const auto stream = c10::cuda::getCurrentCUDAStream();
        cuda::stream_ref{stream.stream()}.copy(to.mutable_data_ptr(), from.const_data_ptr(), from.nbytes(),
                                               cudaMemcpyDefault);
        const auto& pinned = to.is_cpu() ? to : from;
        at::getHostAllocator(at::kCUDA)->record_event(pinned.mutable_data_ptr(),
                                                      pinned.storage().data_ptr().get_context(), stream.unwrap());
    }
};

/// Makes LibTorch put its work into the CUDA stream of a lane.
template <> struct lane_traits<cuda::lane> {
    class scope {
    public:
        explicit scope(const cuda::lane& on)
            : stream_{c10::cuda::getStreamFromExternal(on.stream().native(), c10::cuda::current_device())} {}

    private:
        c10::cuda::CUDAStreamGuard stream_;
    };
    static constexpr bool is_host = false;
    static at::Device device_of(const cuda::executor& on) {
        return {at::kCUDA, static_cast<c10::DeviceIndex>(on.device())};
    }
    static std::unique_ptr<stash_memory> make_memory(const rank_program& p) { return std::make_unique<cuda_memory>(p); }
};

static_assert(execution::check_executor<executor<cuda::executor>>());
static_assert(execution::check_stage_model<rank_model, cuda::lane>());

} // namespace optpipe::libtorch
