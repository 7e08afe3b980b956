#pragma once

#include "optpipe/execution/executor.hpp"
#include "optpipe/program/ir.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>
#include <utility>

namespace optpipe::execution {

/// Sizes of a rank's three arenas, in bytes.
struct arena_sizes {
    std::size_t device = 0;
    std::size_t host = 0;
    std::size_t message = 0;
    friend constexpr bool operator==(const arena_sizes&, const arena_sizes&) = default;
};

/// The sizes of the arenas that a program needs.
[[nodiscard]] inline arena_sizes sizes_of(const rank_program& p) {
    return {p.device_bytes, p.host_bytes, p.message_bytes};
}
/// The larger of the two sizes, for each arena.
[[nodiscard]] constexpr arena_sizes largest(const arena_sizes& a, const arena_sizes& b) {
    return {std::max(a.device, b.device), std::max(a.host, b.host), std::max(a.message, b.message)};
}

/// The owner of the memory in which a program's buffers are.
enum class buffer_owner : std::uint8_t {
    library, ///< the library: buffers are in the arenas of the executor's memory
    engine,  ///< the training engine allocates the buffers as tensors while the program runs. The library doesn't know
             ///< the tensors' addresses. The sizes in the program are upper limits for the engine
};
/// The owners of a rank's buffers. Tasks have empty spans for buffers that the engine owns. An engine finds its tensors
/// by stage, microbatch and storage option.
struct buffer_owners {
    buffer_owner stashes = buffer_owner::library; ///< the owner of stashes on the device and on the host
    buffer_owner messages = buffer_owner::library;

    [[nodiscard]] constexpr buffer_owner of(memory_arena which) const {
        return which == memory_arena::message ? messages : stashes;
    }
    friend constexpr bool operator==(const buffer_owners&, const buffer_owners&) = default;
};
/// The sizes of the memory that the library allocates. Arenas that the training engine owns count as 0.
[[nodiscard]] constexpr arena_sizes sizes_taken(const arena_sizes& all, const buffer_owners& owners) {
    const auto taken = [&](memory_arena which, std::size_t bytes) {
        return owners.of(which) == buffer_owner::library ? bytes : 0;
    };
    return {taken(memory_arena::device, all.device), taken(memory_arena::host, all.host),
            taken(memory_arena::message, all.message)};
}

/// The memory of a rank's arenas, and the sizes of the arenas.
struct arena_memory {
    std::span<std::byte> device{};
    std::span<std::byte> host{};
    std::span<std::byte> message{};
    /// Sizes of all arenas, including those of the training engine.
    arena_sizes sizes{};
    buffer_owners owners{};

    [[nodiscard]] std::span<std::byte> operator[](memory_arena which) const {
        switch (which) {
        case memory_arena::device: return device;
        case memory_arena::host: return host;
        case memory_arena::message: return message;
        }
        return {};
    }
    [[nodiscard]] std::size_t bytes_of(memory_arena which) const {
        switch (which) {
        case memory_arena::device: return sizes.device;
        case memory_arena::host: return sizes.host;
        case memory_arena::message: return sizes.message;
        }
        return 0;
    }
};

/// Allocates one rank's arenas once, for all programs of the rank. If an allocation fails, throws the exception of the
/// executor's memory.
template <class Executor> class arenas {
public:
    arenas(Executor& on, const arena_sizes& sizes, const buffer_owners& owners = {})
        : arenas{on, sizes, owners, sizes_taken(sizes, owners)} {}
    arenas(const arenas&) = delete;
    arenas& operator=(const arenas&) = delete;

    [[nodiscard]] const arena_memory& memory() const { return memory_; }

private:
    using memory_type = std::remove_reference_t<decltype(std::declval<Executor&>().memory())>;
    using device_slab = decltype(std::declval<memory_type&>().device(0));
    using host_slab = decltype(std::declval<memory_type&>().host(0));

    arenas(Executor& on, const arena_sizes& sizes, const buffer_owners& owners, const arena_sizes& taken)
        : host_{on.memory().host(taken.host)}, device_{on.memory().device(taken.device)},
          messages_{on.memory().device(taken.message)}, memory_{device_.memory().first(taken.device),
                                                                host_.memory().first(taken.host),
                                                                messages_.memory().first(taken.message), sizes,
                                                                owners} {}

    /// The host slab is declared first and destroyed last. Freeing device memory waits for all copies to the host.
    host_slab host_;
    device_slab device_;
    device_slab messages_;
    arena_memory memory_;
};

} // namespace optpipe::execution
