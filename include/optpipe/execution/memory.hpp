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

/// Where a rank's arenas come from, once each.
///
/// Semantics: `device(n)` and `host(n)` give a slab, which owns `n` bytes or a few more until it is destroyed; its
/// `memory()` begins where anything can be stored: on a GPU at a multiple of 256 bytes. What isn't to be had throws a
/// child of `optpipe::error`. Bytes of a device slab may be out of reach for the host; those of a host slab aren't.
template <class M> concept memory = has_device_memory<M> && has_host_memory<M>;

/// The sentence that a type lacks to be a memory.
template <class M> consteval bool check_memory() {
    static_assert(has_device_memory<M>, "memory: needs `device(std::size_t)`, which returns a movable slab with "
                                        "`std::span<std::byte> memory() const`");
    static_assert(has_host_memory<M>, "memory: needs `host(std::size_t)`, which returns a movable slab with "
                                      "`std::span<std::byte> memory() const`");
    return memory<M>;
}

} // namespace optpipe::execution
