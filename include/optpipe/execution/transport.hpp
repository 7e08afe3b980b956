#pragma once

#include "optpipe/execution/lane.hpp"
#include "optpipe/program/ir.hpp"

#include <concepts>
#include <cstddef>
#include <span>

namespace optpipe::execution {

/// As many sends and receives as an exchange has to take at least.
inline constexpr std::size_t most_messages = 4;

template <class B> concept has_send = requires(B& open, const task_label& what, std::span<const std::byte> data) {
    { open.send(what, data) } -> std::same_as<void>;
};
template <class B> concept has_receive = requires(B& open, const task_label& what, std::span<std::byte> data) {
    { open.receive(what, data) } -> std::same_as<void>;
};

namespace detail {
template <class Batch> struct some_messages {
    void operator()(Batch&) const {}
};
} // namespace detail

template <class T> concept has_batch = requires { typename T::batch; };
template <class T, class L>
concept has_exchange = has_batch<T> &&
    requires(T& by, L& on, const detail::some_messages<typename T::batch>& messages) {
    { by.exchange(on, messages) } -> std::same_as<void>;
};

/// Carries messages between ranks.
///
/// Semantics: `exchange(lane, messages)` opens a batch, calls `messages(batch)` at once, and puts what was sent and
/// received there at the end of the lane, as one. There is no other way to send: what isn't in a batch can't be
/// written. `what` names the operation that the message is made by, which tells its direction (`direction_of`), and the
/// peer. Between two ranks messages meet by their order per direction, whatever their lanes. All of a batch progress
/// together. It is over once each has met its partner and its data may be read, or overwritten; a send may wait for its
/// receiver, and must not wait for more. Buffers stay where they are until then.
template <class T, class L>
concept transport =
    lane<L> && has_batch<T> && has_send<typename T::batch> && has_receive<typename T::batch> && has_exchange<T, L>;

/// The sentence that a type lacks to be a transport for lanes of type `L`.
template <class T, class L> consteval bool check_transport() {
    static_assert(check_lane<L>());
    static_assert(has_batch<T>, "transport: needs a type `batch`");
    static_assert(has_send<typename T::batch>,
                  "transport: its batch needs `void send(const task_label&, std::span<const std::byte>)`");
    static_assert(has_receive<typename T::batch>,
                  "transport: its batch needs `void receive(const task_label&, std::span<std::byte>)`");
    static_assert(has_exchange<T, L>,
                  "transport: needs `void exchange(lane&, messages)`, which calls `messages(batch&)`");
    return transport<T, L>;
}

} // namespace optpipe::execution
