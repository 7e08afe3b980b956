#pragma once

#include "optpipe/core/contract.hpp"
#include "optpipe/execution/cuda/error.hpp"
#include "optpipe/execution/cuda/numa.hpp"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <new>
#include <span>
#include <utility>
#include <vector>

namespace optpipe::cuda {

/// Set when a device may go on using memory for ever: then it is never freed. Null: it never does.
using leak_flag = std::shared_ptr<const std::atomic<bool>>;

/// All device memory of a plan in one piece, taken once.
class device_slab {
public:
    explicit device_slab(std::size_t bytes, leak_flag leaks = {}) : bytes_{bytes}, leaks_{std::move(leaks)} {
        if (bytes > 0) check(cudaMalloc(&begin_, bytes), "cudaMalloc");
    }
    device_slab(device_slab&& other) noexcept
        : begin_{std::exchange(other.begin_, nullptr)}, bytes_{std::exchange(other.bytes_, 0)}, leaks_{std::move(
                                                                                                    other.leaks_)} {}
    device_slab& operator=(device_slab&& other) noexcept {
        std::swap(begin_, other.begin_);
        std::swap(bytes_, other.bytes_);
        std::swap(leaks_, other.leaks_);
        return *this;
    }
    ~device_slab() {
        if (begin_ && !(leaks_ && *leaks_)) static_cast<void>(cudaFree(begin_));
    }
    [[nodiscard]] std::span<std::byte> memory() const { return {static_cast<std::byte*>(begin_), bytes_}; }

private:
    void* begin_ = nullptr;
    std::size_t bytes_ = 0;
    leak_flag leaks_;
};

namespace detail {

inline constexpr std::size_t page_bytes = 4096;

[[nodiscard]] constexpr std::size_t whole_pages(std::size_t bytes) {
    return (bytes + page_bytes - 1) / page_bytes * page_bytes;
}
/// How many bytes are left of the part of pinned memory that this is in, for parts of a size that is above 0.
[[nodiscard]] inline std::size_t part_end(const std::byte* at, std::size_t part) {
    return part - reinterpret_cast<std::uintptr_t>(at) % part;
}

} // namespace detail

/// Where a `pinned_slab` comes from.
struct pinned_options {
    /// The most bytes that are pinned by one call, rounded up to pages.
    std::size_t part = std::size_t{64} << 30U;
    /// That touch the pages first, which puts them into their memory; none: any.
    std::vector<int> processors{};
};

/// All host memory that a plan offloads to, in one piece that the device can copy from and to at full speed.
///
/// Pages are touched by several threads before they are pinned, which is faster than cudaHostAlloc, and pinned in
/// parts, as drivers refuse very large ones. Parts end at multiples of their size (`part_end`); no copy may cross an
/// end.
class pinned_slab {
public:
    explicit pinned_slab(std::size_t bytes, const pinned_options& how = {}, leak_flag leaks = {})
        : bytes_{whole_pages(bytes)}, part_{whole_pages(how.part)}, leaks_{std::move(leaks)} {
        OPTPIPE_EXPECT(part_ > 0, "cuda: a part of pinned memory has more than 0 bytes");
        if (bytes_ == 0) return;
        begin_ = static_cast<std::byte*>(std::aligned_alloc(page, bytes_));
        if (!begin_) throw std::bad_alloc{};
        try {
            detail::divide_among(bytes_ / page, how.processors, [this](std::size_t from, std::size_t to) {
                for (std::size_t i = from; i < to; ++i)
                    begin_[i * page] = std::byte{};
            });
            pin();
        } catch (...) {
            release();
            throw;
        }
    }
    pinned_slab(pinned_slab&& other) noexcept
        : begin_{std::exchange(other.begin_, nullptr)}, bytes_{std::exchange(other.bytes_, 0)},
          pinned_{std::exchange(other.pinned_, 0)}, part_{other.part_}, leaks_{std::move(other.leaks_)} {}
    pinned_slab& operator=(pinned_slab&& other) noexcept {
        std::swap(begin_, other.begin_);
        std::swap(bytes_, other.bytes_);
        std::swap(pinned_, other.pinned_);
        std::swap(part_, other.part_);
        std::swap(leaks_, other.leaks_);
        return *this;
    }
    ~pinned_slab() {
        if (!(leaks_ && *leaks_)) release();
    }
    [[nodiscard]] std::span<std::byte> memory() const { return {begin_, bytes_}; }

private:
    static constexpr std::size_t page = detail::page_bytes;
    static constexpr auto whole_pages = detail::whole_pages;

    [[nodiscard]] std::size_t next_part(std::size_t at) const {
        return std::min(bytes_, at + detail::part_end(begin_ + at, part_));
    }
    void pin() {
        for (; pinned_ < bytes_; pinned_ = next_part(pinned_))
            check(cudaHostRegister(begin_ + pinned_, next_part(pinned_) - pinned_, cudaHostRegisterDefault),
                  "cudaHostRegister");
    }
    void release() noexcept {
        for (std::size_t at = 0; at < pinned_; at = next_part(at))
            static_cast<void>(cudaHostUnregister(begin_ + at));
        std::free(begin_);
        begin_ = nullptr;
        bytes_ = pinned_ = 0;
    }

    std::byte* begin_ = nullptr;
    std::size_t bytes_ = 0;
    std::size_t pinned_ = 0;
    std::size_t part_;
    leak_flag leaks_;
};

} // namespace optpipe::cuda
