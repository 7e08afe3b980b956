#pragma once

#include "optpipe/execution/executor.hpp"
#include "optpipe/program/ir.hpp"

#include <algorithm>
#include <cstddef>
#include <span>
#include <type_traits>
#include <utility>

namespace optpipe::execution {

/// Bytes of a rank's three arenas.
struct arena_sizes {
    std::size_t device = 0;
    std::size_t host = 0;
    std::size_t message = 0;
    friend constexpr bool operator==(const arena_sizes&, const arena_sizes&) = default;
};

/// What a program needs.
[[nodiscard]] inline arena_sizes sizes_of(const rank_program& p) {
    return {p.device_bytes, p.host_bytes, p.message_bytes};
}
/// Room for either.
[[nodiscard]] constexpr arena_sizes largest(const arena_sizes& a, const arena_sizes& b) {
    return {std::max(a.device, b.device), std::max(a.host, b.host), std::max(a.message, b.message)};
}

/// Where a rank's arenas lie, and how large they are.
struct arena_memory {
    std::span<std::byte> device{};
    std::span<std::byte> host{};
    std::span<std::byte> message{};

    [[nodiscard]] std::span<std::byte> operator[](memory_arena which) const {
        switch (which) {
        case memory_arena::device: return device;
        case memory_arena::host: return host;
        case memory_arena::message: return message;
        }
        return {};
    }
};

/// The memory of one rank, taken once, whatever programs run in it. Throws what the executor's memory throws.
template <class Executor> class arenas {
public:
    arenas(Executor& on, const arena_sizes& sizes)
        : device_{on.memory().device(sizes.device)}, host_{on.memory().host(sizes.host)},
          messages_{on.memory().device(sizes.message)}, memory_{device_.memory().first(sizes.device),
                                                                host_.memory().first(sizes.host),
                                                                messages_.memory().first(sizes.message)} {}
    arenas(const arenas&) = delete;
    arenas& operator=(const arenas&) = delete;

    [[nodiscard]] const arena_memory& memory() const { return memory_; }

private:
    using memory_type = std::remove_reference_t<decltype(std::declval<Executor&>().memory())>;
    using device_slab = decltype(std::declval<memory_type&>().device(0));
    using host_slab = decltype(std::declval<memory_type&>().host(0));

    device_slab device_;
    host_slab host_;
    device_slab messages_;
    arena_memory memory_;
};

} // namespace optpipe::execution
