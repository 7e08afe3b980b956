#pragma once

#include "optpipe/execution/copy_engine.hpp"
#include "optpipe/execution/lane.hpp"
#include "optpipe/execution/memory.hpp"
#include "optpipe/execution/transport.hpp"
#include "optpipe/program/ir.hpp"

#include <chrono>
#include <concepts>
#include <cstddef>
#include <span>
#include <string_view>
#include <type_traits>

namespace optpipe::execution {

template <class E> using lane_of = typename E::lane_type;
template <class E> using marker_of = typename E::lane_type::marker;

template <class E> concept has_lane_type = requires { typename E::lane_type; };
template <class E> concept has_open_lane = has_lane_type<E> && requires(E& on, lane_kind kind, std::size_t commands) {
    { on.open_lane(kind, commands) } -> std::same_as<lane_of<E>>;
};
template <class E> concept has_make_marker = has_lane_type<E> && requires(E& on) {
    { on.make_marker() } -> std::same_as<marker_of<E>>;
};
template <class E> concept has_copies = has_lane_type<E> && requires(E& on) {
    requires copy_engine<std::remove_reference_t<decltype(on.copies())>, lane_of<E>>;
};
template <class E> concept has_transport = has_lane_type<E> && requires(E& on) {
    requires transport<std::remove_reference_t<decltype(on.transport())>, lane_of<E>>;
};
template <class E> concept has_memory = requires(E& on) {
    requires memory<std::remove_reference_t<decltype(on.memory())>>;
};
template <class E> concept has_place = requires(const E& on) {
    { on.self() } -> std::same_as<rank>;
    { on.ranks() } -> std::same_as<std::size_t>;
};
template <class E> concept has_finish = requires(E& on) {
    { on.finish() } -> std::same_as<void>;
};
template <class E> concept has_cancel = requires(E& on, std::string_view what_it_did, std::string_view reason) {
    { on.cancel(what_it_did, reason) } -> std::same_as<void>;
};

/// One rank's resources for programs: lanes, markers, copies, memory, and a transport.
///
/// Semantics: `open_lane(kind, commands)` returns a separate lane, perhaps borrowed from an engine. `commands` is the
/// largest number of commands that the lane holds at once. `finish()` returns when all work in this rank's lanes has
/// ended and the results are visible. `finish` throws `execution_error` if, on any rank, work throws, a device fails,
/// or a peer exceeds `patience`. No work uses this rank's buffers when `finish` throws. The error is the same on all
/// ranks, and makes the executor unusable. `cancel(what_it_did, reason)` makes `finish` throw `execution_error` on all
/// ranks.
///
/// Without a failure channel, as with plain NCCL, each rank detects a failure on its own. The failed rank reports the
/// reason, and other ranks report an unfinished message.
///
/// Lanes and markers must be destroyed before the executor.
template <class E>
concept executor = has_lane_type<E> && lane<lane_of<E>> && has_open_lane<E> && has_make_marker<E> && has_copies<E> &&
    has_transport<E> && has_memory<E> && has_place<E> && has_finish<E> && has_cancel<E>;

/// The time span of a task, relative to an instant common to all ranks.
struct task_times {
    std::chrono::nanoseconds start{};
    std::chrono::nanoseconds end{};
};

/// A lane that records the times of its tasks (launches, copies, exchanges) in order. `forget_times` discards all
/// recorded times. Times are valid only after the executor has finished.
template <class L> concept timed_lane = lane<L> && requires(L& on, const L& done) {
    { done.times() } -> std::convertible_to<std::span<const task_times>>;
    { on.forget_times() } -> std::same_as<void>;
};

/// Checks the type at compile time. An error names the requirement that isn't met.
template <class E> consteval bool check_executor() {
    static_assert(has_lane_type<E>, "executor: needs a type `lane_type`");
    static_assert(check_lane<lane_of<E>>());
    static_assert(has_open_lane<E>, "executor: needs `lane_type open_lane(lane_kind, std::size_t commands)`");
    static_assert(has_make_marker<E>, "executor: needs `lane_type::marker make_marker()`");
    static_assert(has_copies<E>, "executor: needs `copies()`, which returns a copy engine");
    static_assert(has_transport<E>, "executor: needs `transport()`, which returns a transport");
    static_assert(has_memory<E>, "executor: needs `memory()`, which returns a memory");
    static_assert(has_place<E>, "executor: needs `rank self() const` and `std::size_t ranks() const`");
    static_assert(has_finish<E>, "executor: needs `void finish()`");
    static_assert(has_cancel<E>,
                  "executor: needs `void cancel(std::string_view what_it_did, std::string_view reason)`");
    return executor<E>;
}

} // namespace optpipe::execution
