#pragma once

#include "optpipe/execution/cuda/error.hpp"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <new>
#include <span>
#include <thread>
#include <utility>
#include <vector>

namespace optpipe::cuda {

/// All device memory of a plan in one piece, taken once.
class device_slab {
public:
    explicit device_slab(std::size_t bytes) : bytes_{bytes} {
        if (bytes > 0) check(cudaMalloc(&begin_, bytes), "cudaMalloc");
    }
    device_slab(device_slab&& other) noexcept
        : begin_{std::exchange(other.begin_, nullptr)}, bytes_{std::exchange(other.bytes_, 0)} {}
    device_slab& operator=(device_slab&& other) noexcept {
        std::swap(begin_, other.begin_);
        std::swap(bytes_, other.bytes_);
        return *this;
    }
    ~device_slab() {
        if (begin_) static_cast<void>(cudaFree(begin_));
    }
    [[nodiscard]] std::span<std::byte> memory() const { return {static_cast<std::byte*>(begin_), bytes_}; }

private:
    void* begin_ = nullptr;
    std::size_t bytes_ = 0;
};

/// All host memory that a plan offloads to, in one piece that the device can copy from and to at full speed.
///
/// Pages are touched by several threads before they are pinned, which is faster than cudaHostAlloc, and pinned in parts
/// of at most 64 GiB, as drivers refuse very large ones.
class pinned_slab {
public:
    explicit pinned_slab(std::size_t bytes) : bytes_{(bytes + page - 1) / page * page} {
        if (bytes_ == 0) return;
        begin_ = static_cast<std::byte*>(std::aligned_alloc(page, bytes_));
        if (!begin_) throw std::bad_alloc{};
        try {
            touch();
            pin();
        } catch (...) {
            release();
            throw;
        }
    }
    pinned_slab(pinned_slab&& other) noexcept
        : begin_{std::exchange(other.begin_, nullptr)}, bytes_{std::exchange(other.bytes_, 0)}, pinned_{std::exchange(
                                                                                                    other.pinned_, 0)} {
    }
    pinned_slab& operator=(pinned_slab&& other) noexcept {
        std::swap(begin_, other.begin_);
        std::swap(bytes_, other.bytes_);
        std::swap(pinned_, other.pinned_);
        return *this;
    }
    ~pinned_slab() { release(); }
    [[nodiscard]] std::span<std::byte> memory() const { return {begin_, bytes_}; }

private:
    static constexpr std::size_t page = 4096;
    static constexpr std::size_t part = std::size_t{64} << 30U;

    void touch() {
        const std::size_t count = std::clamp<std::size_t>(std::thread::hardware_concurrency(), 1, 16);
        const std::size_t share = (bytes_ / page + count - 1) / count * page;
        std::vector<std::jthread> threads;
        for (std::size_t from = 0; from < bytes_; from += share)
            threads.emplace_back([this, from, to = std::min(bytes_, from + share)] {
                for (std::size_t i = from; i < to; i += page)
                    begin_[i] = std::byte{};
            });
    }
    void pin() {
        while (pinned_ < bytes_) {
            const auto size = std::min(part, bytes_ - pinned_);
            check(cudaHostRegister(begin_ + pinned_, size, cudaHostRegisterDefault), "cudaHostRegister");
            pinned_ += size;
        }
    }
    void release() noexcept {
        for (std::size_t at = 0; at < pinned_; at += part)
            static_cast<void>(cudaHostUnregister(begin_ + at));
        std::free(begin_);
        begin_ = nullptr;
        bytes_ = pinned_ = 0;
    }

    std::byte* begin_ = nullptr;
    std::size_t bytes_ = 0;
    std::size_t pinned_ = 0;
};

} // namespace optpipe::cuda
