#pragma once

#include "optpipe/core/standard.hpp"

#include <concepts>
#include <cstddef>
#include <span>

namespace optpipe::execution {

template <class S> concept slab = std::movable<S> && requires(const S& owned) {
    { owned.memory() } -> std::same_as<std::span<std::byte>>;
};
template <class M> concept has_device_memory = requires(M& from, std::size_t bytes) {
    { from.device(bytes) } -> slab;
};
template <class M> concept has_host_memory = requires(M& from, std::size_t bytes) {
    { from.host(bytes) } -> slab;
};

/// Allocates the arenas of a rank. Each arena needs one call of `device` or `host`.
///
/// Semantics: `device(n)` and `host(n)` return a slab that owns at least `n` bytes. `memory()` is aligned for any type,
/// on a GPU to 256 bytes. If an allocation fails, `device` or `host` throws a child of `optpipe::error`. The host can
/// access the bytes of host slabs, but not always those of device slabs.
template <class M> concept memory = has_device_memory<M> && has_host_memory<M>;

/// Checks the type at compile time. An error names the requirement that isn't met.
template <class M> consteval bool check_memory() {
    static_assert(has_device_memory<M>, "memory: needs `device(std::size_t)`, which returns a movable slab with "
                                        "`std::span<std::byte> memory() const`");
    static_assert(has_host_memory<M>, "memory: needs `host(std::size_t)`, which returns a movable slab with "
                                      "`std::span<std::byte> memory() const`");
    return memory<M>;
}

} // namespace optpipe::execution
