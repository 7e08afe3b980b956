#pragma once

#include "precision.hpp"
#include "product.hpp"
#include <optpipe/core/error.hpp>
#include <optpipe/execution/cuda/error.hpp>
#include <optpipe/execution/cuda/stream.hpp>

#include <cublas_v2.h>
#include <cuda_runtime.h>

#include <cstddef>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace language_model {

/// A warp as a team.
struct warp_team {
    unsigned lane;

    template <class Value> __device__ float sum(std::size_t count, const Value& value) const {
        float total = 0.0F;
        for (std::size_t j = lane; j < count; j += warpSize)
            total += value(j);
        for (int step = warpSize / 2; step > 0; step /= 2)
            total += __shfl_xor_sync(0xffffffffU, total, step);
        return total;
    }
    template <class Value> __device__ float largest(std::size_t count, const Value& value) const {
        float most = -INFINITY;
        for (std::size_t j = lane; j < count; j += warpSize)
            most = fmaxf(most, value(j));
        for (int step = warpSize / 2; step > 0; step /= 2)
            most = fmaxf(most, __shfl_xor_sync(0xffffffffU, most, step));
        return most;
    }
    template <class Body> __device__ void each(std::size_t count, const Body& body) const {
        for (std::size_t j = lane; j < count; j += warpSize)
            body(j);
    }
    template <class Body> __device__ void once(const Body& body) const {
        if (lane == 0) body();
    }
    __device__ void synchronize() const { __syncwarp(); }
};

namespace detail {

inline constexpr unsigned threads_per_block = 256;
inline constexpr unsigned warp_size = 32;
inline constexpr unsigned rows_per_block = threads_per_block / warp_size;

template <class Body> __global__ void element_kernel(std::size_t count, Body body) {
    const std::size_t i = std::size_t{blockIdx.x} * blockDim.x + threadIdx.x;
    if (i < count) body(i);
}
/// Runs a body with one warp per row.
template <class Body> __global__ void row_kernel(std::size_t rows, Body body) {
    const std::size_t row = std::size_t{blockIdx.x} * rows_per_block + threadIdx.x / warp_size;
    if (row < rows) body(row, warp_team{threadIdx.x % warp_size});
}
/// Uses a block of 32 × 32 threads for 32 columns; each thread adds up every 32nd row of its column.
template <class Term> __global__ void column_kernel(std::size_t rows, std::size_t columns, Term term, float* out) {
    __shared__ float parts[warp_size][warp_size + 1];
    const std::size_t column = std::size_t{blockIdx.x} * warp_size + threadIdx.x;
    float sum = 0.0F;
    if (column < columns)
        for (std::size_t i = threadIdx.y; i < rows; i += warp_size)
            sum += term(i, column);
    parts[threadIdx.y][threadIdx.x] = sum;
    __syncthreads();
    if (threadIdx.y > 0 || column >= columns) return;
    for (unsigned y = 1; y < warp_size; ++y)
        sum += parts[y][threadIdx.x];
    out[column] += sum;
}

inline void check_blas(cublasStatus_t status, const char* call) {
    if (status != CUBLAS_STATUS_SUCCESS) throw optpipe::error{std::string{call} + ": " + cublasGetStatusString(status)};
}

class blas_handle {
public:
    blas_handle() { check_blas(cublasCreate(&handle_), "cublasCreate"); }
    blas_handle(const blas_handle&) = delete;
    blas_handle& operator=(const blas_handle&) = delete;
    ~blas_handle() { static_cast<void>(cublasDestroy(handle_)); }
    [[nodiscard]] cublasHandle_t native() const { return handle_; }

private:
    cublasHandle_t handle_ = nullptr;
};

} // namespace detail

/// The current GPU as a device (`device_math`): kernels and cuBLAS, in one stream at a time. To be used by one thread
/// at a time.
class stream_device {
public:
    /// Owned device memory.
    template <class T> class array {
    public:
        array() = default;
        explicit array(std::size_t size) : size_{size} {
            if (size > 0)
                optpipe::cuda::check(cudaMalloc(reinterpret_cast<void**>(&begin_), size * sizeof(T)), "cudaMalloc");
        }
        array(array&& other) noexcept
            : begin_{std::exchange(other.begin_, nullptr)}, size_{std::exchange(other.size_, 0)} {}
        array& operator=(array&& other) noexcept {
            std::swap(begin_, other.begin_);
            std::swap(size_, other.size_);
            return *this;
        }
        ~array() {
            if (begin_) static_cast<void>(cudaFree(begin_));
        }
        [[nodiscard]] T* data() { return begin_; }
        [[nodiscard]] const T* data() const { return begin_; }
        [[nodiscard]] std::size_t size() const { return size_; }

    private:
        T* begin_ = nullptr;
        std::size_t size_ = 0;
    };

    /// `multiprocessors` is the number available to the streams it will use; 0: all.
    explicit stream_device(precision how, int multiprocessors = 0) : how_{how}, workspace_{workspace_bytes} {
        if (multiprocessors > 0)
            detail::check_blas(cublasSetSmCountTarget(blas_.native(), multiprocessors), "cublasSetSmCountTarget");
        use_own();
    }
    stream_device(const stream_device&) = delete;
    stream_device& operator=(const stream_device&) = delete;

    /// Puts the following work into this stream.
    void use(cudaStream_t stream) {
        if (stream == stream_) return;
        detail::check_blas(cublasSetStream(blas_.native(), stream), "cublasSetStream");
        // cublasSetStream resets the workspace. An own workspace makes results independent of concurrent work, and
        // allows capture.
        detail::check_blas(cublasSetWorkspace(blas_.native(), workspace_.data(), workspace_bytes),
                           "cublasSetWorkspace");
        stream_ = stream;
    }
    void use_own() { use(own()); }
    [[nodiscard]] cudaStream_t own() const { return own_.native(); }

    template <class T> [[nodiscard]] array<T> store(const std::vector<T>& values) {
        array<T> there(values.size());
        overwrite<T>({there.data(), there.size()}, values);
        return there;
    }
    template <class T> [[nodiscard]] std::vector<T> load(std::span<const T> from) {
        wait();
        std::vector<T> here(from.size());
        optpipe::cuda::check(cudaMemcpy(here.data(), from.data(), from.size_bytes(), cudaMemcpyDeviceToHost),
                             "cudaMemcpy");
        return here;
    }
    template <class T> [[nodiscard]] std::vector<T> load_in_order(std::span<const T> from) {
        std::vector<T> here(from.size());
        optpipe::cuda::check(
            cudaMemcpyAsync(here.data(), from.data(), from.size_bytes(), cudaMemcpyDeviceToHost, stream_),
            "cudaMemcpyAsync");
        optpipe::cuda::check(cudaStreamSynchronize(stream_), "cudaStreamSynchronize");
        return here;
    }
    template <class T> void overwrite(std::span<T> to, std::span<const T> from) {
        wait();
        optpipe::cuda::check(cudaMemcpy(to.data(), from.data(), from.size_bytes(), cudaMemcpyHostToDevice),
                             "cudaMemcpy");
        wait(); // the copy must have read the host's memory before it returns
    }
    static void wait() { optpipe::cuda::check(cudaDeviceSynchronize(), "cudaDeviceSynchronize"); }

    template <class Body> void for_each(std::size_t count, const Body& body) {
        if (count == 0) return;
        detail::element_kernel<<<blocks(count, detail::threads_per_block), detail::threads_per_block, 0, stream_>>>(
            count, body);
        optpipe::cuda::check(cudaGetLastError(), "launch of a kernel over elements");
    }
    template <class Body> void for_each_row(std::size_t rows, const Body& body) {
        if (rows == 0) return;
        detail::row_kernel<<<blocks(rows, detail::rows_per_block), detail::threads_per_block, 0, stream_>>>(rows, body);
        optpipe::cuda::check(cudaGetLastError(), "launch of a kernel over rows");
    }
    template <class Term> void add_column_sums(std::size_t rows, std::size_t columns, const Term& term, float* out) {
        if (columns == 0) return;
        const dim3 threads{detail::warp_size, detail::warp_size};
        detail::column_kernel<<<blocks(columns, detail::warp_size), threads, 0, stream_>>>(rows, columns, term, out);
        optpipe::cuda::check(cudaGetLastError(), "launch of a kernel over columns");
    }
    void multiply(const product& p) {
        const auto op = [](bool transpose) { return transpose ? CUBLAS_OP_T : CUBLAS_OP_N; };
        const auto integer = [](std::size_t n) { return static_cast<int>(n); };
        const auto stride = [](std::size_t n) { return static_cast<long long>(n); };
        constexpr auto type = CUDA_R_32F;
        // For a single product, cuBLAS knows more algorithms.
        if (p.count == 1)
            return detail::check_blas(cublasGemmEx(blas_.native(), op(p.transpose_a), op(p.transpose_b),
                                                   integer(p.rows), integer(p.columns), integer(p.inner), &p.alpha, p.a,
                                                   type, integer(p.a_leading), p.b, type, integer(p.b_leading), &p.beta,
                                                   p.c, type, integer(p.c_leading), compute_type(),
                                                   CUBLAS_GEMM_DEFAULT),
                                      "cublasGemmEx");
        detail::check_blas(cublasGemmStridedBatchedEx(blas_.native(), op(p.transpose_a), op(p.transpose_b),
                                                      integer(p.rows), integer(p.columns), integer(p.inner), &p.alpha,
                                                      p.a, type, integer(p.a_leading), stride(p.a_stride), p.b, type,
                                                      integer(p.b_leading), stride(p.b_stride), &p.beta, p.c, type,
                                                      integer(p.c_leading), stride(p.c_stride), integer(p.count),
                                                      compute_type(), CUBLAS_GEMM_DEFAULT),
                           "cublasGemmStridedBatchedEx");
    }
    void copy(const float* from, float* to, std::size_t count) {
        optpipe::cuda::check(cudaMemcpyAsync(to, from, count * sizeof(float), cudaMemcpyDeviceToDevice, stream_),
                             "cudaMemcpyAsync");
    }
    void clear(float* to, std::size_t count) {
        optpipe::cuda::check(cudaMemsetAsync(to, 0, count * sizeof(float), stream_), "cudaMemsetAsync");
    }

private:
    /// The size that cuBLAS recommends for Hopper.
    static constexpr std::size_t workspace_bytes = std::size_t{32} << 20U;

    static unsigned blocks(std::size_t count, unsigned per_block) {
        return static_cast<unsigned>((count + per_block - 1) / per_block);
    }
    [[nodiscard]] cublasComputeType_t compute_type() const {
        switch (how_) {
        case precision::single: return CUBLAS_COMPUTE_32F;
        case precision::tf32: return CUBLAS_COMPUTE_32F_FAST_TF32;
        }
        return CUBLAS_COMPUTE_32F;
    }

    precision how_;
    optpipe::cuda::stream own_{};
    cudaStream_t stream_ = nullptr;
    array<std::byte> workspace_;
    detail::blas_handle blas_{};
};

} // namespace language_model
