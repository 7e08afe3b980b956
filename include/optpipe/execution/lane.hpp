#pragma once

#include "optpipe/program/ir.hpp"

#include <concepts>
#include <cstddef>
#include <type_traits>

namespace optpipe::execution {

/// The largest size of a work object that `launch` must accept, in bytes. Work objects are trivially copyable and need
/// no allocation.
inline constexpr std::size_t work_bytes = 48;
template <class Work> concept small_work = std::is_trivially_copyable_v<Work> && sizeof(Work) <= work_bytes;

namespace detail {
template <class L> struct some_work {
    void* state;
    void operator()(L&) const {}
};
} // namespace detail

template <class L> concept has_marker = std::movable<typename L::marker>;
template <class L> concept has_launch = requires(L& on, const task_label& label, const detail::some_work<L>& work) {
    { on.launch(label, work) } -> std::same_as<void>;
};
template <class L> concept has_record = has_marker<L> && requires(L& on, typename L::marker& m) {
    { on.record(m) } -> std::same_as<void>;
};
template <class L> concept has_wait = has_marker<L> && requires(L& on, const typename L::marker& m) {
    { on.wait(m) } -> std::same_as<void>;
};

/// Executes commands in order, independently of the issuing thread. Examples are a thread with a queue, or a CUDA
/// stream.
///
/// Semantics: `launch`, `record`, `wait`, copies and exchanges append a command without waiting. Commands of one lane
/// run one after the other, in order. Different lanes run at the same time. `record(m)` marks all commands now in the
/// lane. `wait(m)` holds back later commands until all commands marked by the last `record(m)` have ended. If there was
/// no `record(m)`, the wait does nothing. A command after `wait(m)` sees all results that the marked commands produced
/// or could see.
///
/// `launch(label, work)` calls `work(lane)` once. Lanes such as CUDA streams call `work` immediately; `work` only
/// appends commands, such as kernels. Lanes such as threads call `work` after all earlier commands; `work` must not
/// append commands. `work` may wait for another rank. Only one thread at a time may call the lanes of a rank. After an
/// error, commands are dropped, but calls return normally until `finish` reports the error.
template <class L> concept lane = std::movable<L> && has_marker<L> && has_launch<L> && has_record<L> && has_wait<L>;

/// Checks the type at compile time. An error names the requirement that isn't met.
template <class L> consteval bool check_lane() {
    static_assert(std::movable<L>, "lane: must be movable");
    static_assert(has_marker<L>, "lane: needs a movable type `marker`");
    static_assert(has_launch<L>,
                  "lane: needs `void launch(const task_label&, work)`, for work that is callable with the "
                  "lane, trivially copyable and at most 48 bytes large");
    static_assert(has_record<L>, "lane: needs `void record(marker&)`");
    static_assert(has_wait<L>, "lane: needs `void wait(const marker&)`");
    return lane<L>;
}

} // namespace optpipe::execution
