#pragma once

#include "optpipe/execution/lane.hpp"
#include "optpipe/program/ir.hpp"

#include <concepts>
#include <cstddef>
#include <span>

namespace optpipe::execution {

/// The number of messages that a transport must accept in one exchange.
inline constexpr std::size_t most_messages = 4;

/// One end of a message. `label` names the peer, and the operation that produces the message. The operation determines
/// the direction of the message (`direction_of`).
struct message_end {
    bool sends = false;
    task_label label{};
    /// The address to which a receive writes. `from` is the address from which a send reads.
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
/// Semantics: `exchange(lane, messages)` appends the messages to the lane as one command. The span `messages` needs to
/// be valid only during the call. Messages from one rank to another match in order in each direction, on any lane. All
/// messages of an exchange progress together. The exchange ends once received data may be read and sent data
/// overwritten. A send must wait only for its receiver. Data must stay in place until the exchange ends. Messages
/// without addresses have no bytes; the engine's own transport identifies them by label.
template <class T, class L> concept transport = lane<L> && has_exchange<T, L>;

/// Checks the type at compile time, for lanes of type `L`. An error names the requirement that isn't met.
template <class T, class L> consteval bool check_transport() {
    static_assert(check_lane<L>());
    static_assert(has_exchange<T, L>, "transport: needs `void exchange(lane&, std::span<const message_end>)`");
    return transport<T, L>;
}

} // namespace optpipe::execution
