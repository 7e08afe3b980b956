#pragma once

#include "optpipe/core/index.hpp"
#include "optpipe/execution/executor.hpp"

#include <concepts>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace optpipe::execution {

/// A text, and the rank that sent it.
struct rank_text {
    optpipe::rank from{};
    std::string text{};
    friend bool operator==(const rank_text&, const rank_text&) = default;
};

template <class C> concept has_publish = requires(C& by, std::string_view text) {
    { by.publish(text) } -> std::same_as<void>;
};
template <class C> concept has_next_published = requires(C& by) {
    { by.next_published() } -> std::same_as<std::optional<std::string>>;
};
template <class C> concept has_report = requires(C& by, std::string_view text) {
    { by.report(text) } -> std::same_as<void>;
};
template <class C> concept has_next_report = requires(C& by) {
    { by.next_report() } -> std::same_as<std::optional<rank_text>>;
};
template <class C> concept has_begin_minimum = requires(C& by, std::uint64_t value) {
    { by.begin_minimum(value) } -> std::same_as<void>;
};
template <class C> concept has_minimum = requires(C& by) {
    { by.minimum() } -> std::same_as<std::uint64_t>;
};

/// Communication between ranks apart from the messages of programs. The texts are short, and are sent at most about
/// once per step.
///
/// Semantics: `publish(text)` on rank 0 sends a text of any length to all ranks, including rank 0. `next_published()`
/// returns the next text that has arrived, or nothing. Texts arrive in the order in which they were published.
/// `report(text)` on any rank sends a text to rank 0. `next_report()` on rank 0 returns the reported texts one by one.
/// Texts of the same rank stay in order.
///
/// `begin_minimum(value)` joins an all-reduce and returns immediately. `minimum()` waits for the least value of all
/// ranks. A rank may call `begin_minimum` again only after `minimum()` has returned. A report sent before
/// `begin_minimum` arrives at rank 0 before the minimum. The channel stores texts and results until the rank asks for
/// them.
///
/// `cancel(what_it_did, reason)` immediately tells all ranks that this rank has failed. The channel also fails if a
/// rank is gone, or exceeds the time limit `patience` in an all-reduce. After a failure, every call on every rank
/// throws `execution_error`, naming the failed rank. A failed channel still allows `cancel`, and `minimum()` if the
/// result has arrived. Only one thread at a time may use the channel.
template <class C>
concept control_channel = has_place<C> && has_publish<C> && has_next_published<C> && has_report<C> &&
    has_next_report<C> && has_begin_minimum<C> && has_minimum<C> && has_cancel<C>;

template <class C> concept has_send = requires(C& by, rank to, std::string_view text) {
    { by.send(to, text) } -> std::same_as<void>;
};
template <class C> concept has_receive = requires(C& by, rank from) {
    { by.receive(from) } -> std::same_as<std::string>;
};

/// A channel that carries texts between any two ranks.
///
/// Semantics: `send(to, text)` returns immediately, and the text may arrive at any time. `to` may be the sender itself.
/// `receive(from)` waits for the next text of the rank `from`, in the order of sending. `send` and `receive` throw
/// `execution_error` once a rank has failed. `receive` also throws if no text arrives within the channel's time limit
/// (`patience`). After a failure, `receive` may still return a text that had already arrived. Only one thread at a time
/// may use `send` and `receive`. Another thread may use the other functions of the control channel.
template <class C> concept peer_channel = has_place<C> && has_send<C> && has_receive<C>;

/// Checks the type at compile time. An error names the requirement that isn't met.
template <class C> consteval bool check_control_channel() {
    static_assert(has_place<C>, "control channel: needs `rank self() const` and `std::size_t ranks() const`");
    static_assert(has_publish<C>, "control channel: needs `void publish(std::string_view)`");
    static_assert(has_next_published<C>, "control channel: needs `std::optional<std::string> next_published()`");
    static_assert(has_report<C>, "control channel: needs `void report(std::string_view)`");
    static_assert(has_next_report<C>, "control channel: needs `std::optional<rank_text> next_report()`");
    static_assert(has_begin_minimum<C>, "control channel: needs `void begin_minimum(std::uint64_t)`");
    static_assert(has_minimum<C>, "control channel: needs `std::uint64_t minimum()`");
    static_assert(has_cancel<C>,
                  "control channel: needs `void cancel(std::string_view what_it_did, std::string_view reason)`");
    return control_channel<C>;
}

/// Checks the type at compile time. An error names the requirement that isn't met.
template <class C> consteval bool check_peer_channel() {
    static_assert(has_place<C>, "peer channel: needs `rank self() const` and `std::size_t ranks() const`");
    static_assert(has_send<C>, "peer channel: needs `void send(rank to, std::string_view)`");
    static_assert(has_receive<C>, "peer channel: needs `std::string receive(rank from)`");
    return peer_channel<C>;
}

} // namespace optpipe::execution
