#pragma once

#include "optpipe/core/contract.hpp"
#include "optpipe/execution/cuda/error.hpp"
#include "optpipe/execution/cuda/lowering.hpp"
#include "optpipe/execution/cuda/numa.hpp"

#include <cuda_runtime_api.h>
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <span>
#include <utility>
#include <vector>

namespace optpipe::cuda {

/// Set if a device may never stop using its memory. Memory that a device may still use is never freed. Null if memory
/// can always be freed.
using leak_flag = std::shared_ptr<const std::atomic<bool>>;

/// All device memory of a plan, allocated once as a single block.
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
/// Number of bytes from `at` to the end of its part of pinned memory. Parts have the size `part`, which is above 0.
[[nodiscard]] inline std::size_t part_end(const std::byte* at, std::size_t part) {
    return part - reinterpret_cast<std::uintptr_t>(at) % part;
}

/// A range of pages in host memory. A range of at most one part doesn't cross the end of a part. A range larger than
/// one part starts at the beginning of a part.
class page_range {
public:
    page_range() = default;
    /// Throws `std::bad_alloc` if there isn't enough memory.
    page_range(std::size_t bytes, std::size_t part) : bytes_{bytes} {
        if (bytes == 0) return;
        // Only reserves addresses, which takes no memory. Unused addresses are released immediately.
        const auto reserved = bytes + std::min(bytes, part);
        void* const all = mmap(nullptr, reserved, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (all == MAP_FAILED) throw std::bad_alloc{};
        auto* const first = static_cast<std::byte*>(all);
        const auto before = bytes > part_end(first, part) ? part_end(first, part) % part : 0;
        begin_ = first + before;
        if (before > 0) munmap(first, before);
        if (before + bytes < reserved) munmap(begin_ + bytes, reserved - bytes - before);
        if (mprotect(begin_, bytes, PROT_READ | PROT_WRITE) == 0) return;
        munmap(begin_, bytes);
        throw std::bad_alloc{};
    }
    page_range(page_range&& other) noexcept
        : begin_{std::exchange(other.begin_, nullptr)}, bytes_{std::exchange(other.bytes_, 0)} {}
    page_range& operator=(page_range&& other) noexcept {
        std::swap(begin_, other.begin_);
        std::swap(bytes_, other.bytes_);
        return *this;
    }
    ~page_range() {
        if (begin_) munmap(begin_, bytes_);
    }
    [[nodiscard]] std::byte* begin() const { return begin_; }
    [[nodiscard]] std::size_t bytes() const { return bytes_; }
    /// Gives up ownership without freeing the pages.
    void leak() noexcept { begin_ = nullptr; }

private:
    std::byte* begin_ = nullptr;
    std::size_t bytes_ = 0;
};

} // namespace detail

/// Options of a `pinned_slab`.
struct pinned_options {
    /// Largest number of bytes that one call pins, rounded up to pages.
    std::size_t part = pinned_part_bytes;
    /// The processors on which threads touch the pages first. A page is placed near the processor that touches it
    /// first. If the list is empty, any processor may touch the pages first.
    std::vector<int> processors{};
};

/// All host memory for a plan's offloaded data, as a single block. The device can copy to and from this block at full
/// speed.
///
/// Several threads touch the pages before pinning, which is faster than cudaHostAlloc. Pages are pinned in parts,
/// because drivers refuse to pin very many pages at once. No copy may cross the end of a part. For
/// `lowering_options::host_part`, parts end at multiples of their size, as addresses and as offsets.
class pinned_slab {
public:
    explicit pinned_slab(std::size_t bytes, const pinned_options& how = {}, leak_flag leaks = {})
        : part_{checked(whole_pages(how.part))}, pages_{whole_pages(bytes), part_}, leaks_{std::move(leaks)} {
        auto* const begin = pages_.begin();
        detail::divide_among(pages_.bytes() / page, how.processors, [begin](std::size_t from, std::size_t to) {
            for (std::size_t i = from; i < to; ++i)
                begin[i * page] = std::byte{};
        });
        try {
            pin();
        } catch (...) {
            unpin();
            throw;
        }
    }
    pinned_slab(pinned_slab&& other) noexcept
        : part_{other.part_}, pages_{std::move(other.pages_)}, pinned_{std::exchange(other.pinned_, 0)},
          leaks_{std::move(other.leaks_)} {}
    pinned_slab& operator=(pinned_slab&& other) noexcept {
        std::swap(part_, other.part_);
        std::swap(pages_, other.pages_);
        std::swap(pinned_, other.pinned_);
        std::swap(leaks_, other.leaks_);
        return *this;
    }
    ~pinned_slab() {
        if (leaks_ && *leaks_)
            pages_.leak();
        else
            unpin();
    }
    [[nodiscard]] std::span<std::byte> memory() const { return {pages_.begin(), pages_.bytes()}; }

private:
    static constexpr std::size_t page = detail::page_bytes;
    static constexpr auto whole_pages = detail::whole_pages;

    static std::size_t checked(std::size_t part) {
        OPTPIPE_EXPECT(part > 0, "cuda: a part of pinned memory has more than 0 bytes");
        return part;
    }
    [[nodiscard]] std::size_t next_part(std::size_t at) const {
        return std::min(pages_.bytes(), at + detail::part_end(pages_.begin() + at, part_));
    }
    void pin() {
        for (; pinned_ < pages_.bytes(); pinned_ = next_part(pinned_))
            check(cudaHostRegister(pages_.begin() + pinned_, next_part(pinned_) - pinned_, cudaHostRegisterDefault),
                  "cudaHostRegister");
    }
    void unpin() noexcept {
        for (std::size_t at = 0; at < pinned_; at = next_part(at))
            static_cast<void>(cudaHostUnregister(pages_.begin() + at));
    }

    std::size_t part_;
    detail::page_range pages_;
    std::size_t pinned_ = 0;
    leak_flag leaks_;
};

} // namespace optpipe::cuda
