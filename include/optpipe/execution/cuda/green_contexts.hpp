#pragma once

#include "optpipe/execution/cuda/error.hpp"
#include "optpipe/execution/cuda/stream.hpp"

#include <cuda.h>
#include <cuda_runtime_api.h>

#include <cstddef>
#include <string>
#include <vector>

namespace optpipe::cuda {

/// Splits the multiprocessors of one device among several virtual ranks. The ranks share memory bandwidth and copy
/// engines.
///
/// Uses the driver's green contexts (CUDA 12.5 and later). Looks up the driver's functions at run time, so programs
/// don't link the driver.
class green_contexts {
public:
    /// Makes `count` parts of at least `least` multiprocessors each. On Hopper, the sizes of parts are multiples of 8.
    /// Throws if the driver can't make the parts.
    green_contexts(int device, unsigned count, unsigned least) {
        check(cudaInitDevice(device, 0, 0), "cudaInitDevice");
        CUdevResource whole{};
        run<PFN_device>("cuDeviceGetDevResource", device, &whole, CU_DEV_RESOURCE_TYPE_SM);
        parts_.resize(count);
        CUdevResource rest{};
        run<PFN_split>("cuDevSmResourceSplitByCount", parts_.data(), &count, &whole, &rest, 0U, least);
        if (count != parts_.size())
            throw error{cudaErrorInvalidValue, "green_contexts: only " + std::to_string(count) + " parts of " +
                                                   std::to_string(least) + " multiprocessors"};
        try {
            for (auto& part : parts_)
                add(device, part);
        } catch (...) {
            release();
            throw;
        }
    }
    green_contexts(const green_contexts&) = delete;
    green_contexts& operator=(const green_contexts&) = delete;
    /// Streams made by `make_stream` must be destroyed before this object.
    ~green_contexts() { release(); }

    [[nodiscard]] std::size_t size() const { return contexts_.size(); }
    [[nodiscard]] unsigned multiprocessors(std::size_t part) const { return parts_[part].sm.smCount; }
    /// A stream whose kernels run only on part `part`.
    [[nodiscard]] stream make_stream(std::size_t part, int priority = 0) const {
        CUstream made = nullptr;
        run<PFN_stream>("cuGreenCtxStreamCreate", &made, contexts_[part], unsigned{CU_STREAM_NON_BLOCKING}, priority);
        return stream{made};
    }

private:
    using PFN_device = CUresult (*)(CUdevice, CUdevResource*, CUdevResourceType);
    using PFN_split = CUresult (*)(CUdevResource*, unsigned*, const CUdevResource*, CUdevResource*, unsigned, unsigned);
    using PFN_describe = CUresult (*)(CUdevResourceDesc*, CUdevResource*, unsigned);
    using PFN_create = CUresult (*)(CUgreenCtx*, CUdevResourceDesc, CUdevice, unsigned);
    using PFN_destroy = CUresult (*)(CUgreenCtx);
    using PFN_stream = CUresult (*)(CUstream*, CUgreenCtx, unsigned, int);

    template <class Function, class... Arguments> static void run(const char* name, Arguments... arguments) {
        constexpr unsigned since = 12050; // cuGreenCtxStreamCreate needs CUDA 12.5
        void* found = nullptr;
        cudaDriverEntryPointQueryResult known{};
        check(cudaGetDriverEntryPointByVersion(name, &found, since, cudaEnableDefault, &known), name);
        if (known != cudaDriverEntryPointSuccess || !found) throw error{cudaErrorNotSupported, name};
        const CUresult status = reinterpret_cast<Function>(found)(arguments...);
        // The first few hundred values of CUresult and cudaError_t are equal.
        if (status != CUDA_SUCCESS) throw error{static_cast<cudaError_t>(status), name};
    }
    void add(int device, CUdevResource& part) {
        CUdevResourceDesc description{};
        run<PFN_describe>("cuDevResourceGenerateDesc", &description, &part, 1U);
        CUgreenCtx made = nullptr;
        run<PFN_create>("cuGreenCtxCreate", &made, description, device, unsigned{CU_GREEN_CTX_DEFAULT_STREAM});
        contexts_.push_back(made);
    }
    void release() noexcept {
        for (const auto context : contexts_) {
            try {
                run<PFN_destroy>("cuGreenCtxDestroy", context);
            } catch (const error&) { // the error can't be handled here
            }
        }
        contexts_.clear();
    }

    std::vector<CUdevResource> parts_;
    std::vector<CUgreenCtx> contexts_;
};

} // namespace optpipe::cuda
