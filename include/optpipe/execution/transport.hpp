#pragma once

#include "optpipe/execution/lane.hpp"
#include "optpipe/program/ir.hpp"

#include <concepts>
#include <cstddef>
#include <span>

namespace optpipe::execution {

/// As many sends and receives as an exchange has to take at least.
inline constexpr std::size_t most_messages = 4;

/// One end of a message. `label` names the operation that the message is made by, which tells its direction
/// (`direction_of`), and the peer.
struct message_end {
    bool sends = false;
    task_label label{};
    /// Of a receive, and of a send.
    std::byte* to = nullptr;
    const std::byte* from = nullptr;
    std::size_t bytes = 0;
};
[[nodiscard]] constexpr message_end send_of(const task_label& what, std::span<const std::byte> data) {
    return {.sends = true, .label = what, .from = data.data(), .bytes = data.size()};
}
[[nodiscard]] constexpr message_end receive_of(const task_label& what, std::span<std::byte> data) {
    return {.sends = false, .label = what, .to = data.data(), .bytes = data.size()};
}
using message_ends = std::span<const message_end>;

template <class T, class L> concept has_exchange = requires(T& by, L& on, message_ends messages) {
    { by.exchange(on, messages) } -> std::same_as<void>;
};

/// Carries messages between ranks.
///
/// Semantics: `exchange(lane, messages)` puts all of these sends and receives at the end of the lane, as one; it
/// doesn't keep `messages`. There is no other way to send. Between two ranks messages meet by their order per
/// direction, whatever their lanes. All of an exchange progress together. It is over once each has met its partner and
/// its data may be read, or overwritten; a send may wait for its receiver, and must not wait for more. Data stays where
/// it is until then. Where the engine owns messages and gives no addresses, they have no bytes: its own transport knows
/// them by their labels.
template <class T, class L> concept transport = lane<L> && has_exchange<T, L>;

/// The sentence that a type lacks to be a transport for lanes of type `L`.
template <class T, class L> consteval bool check_transport() {
    static_assert(check_lane<L>());
    static_assert(has_exchange<T, L>, "transport: needs `void exchange(lane&, std::span<const message_end>)`");
    return transport<T, L>;
}

} // namespace optpipe::execution
