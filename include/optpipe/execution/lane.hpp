#pragma once

#include "optpipe/program/ir.hpp"

#include <concepts>
#include <cstddef>
#include <type_traits>

namespace optpipe::execution {

/// The largest size of a work object that `launch` must accept, in bytes. Work objects are trivially copyable, so no
/// memory is allocated for them.
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

/// Executes commands one after the other, independently of the thread that issues them. Examples are a thread with a
/// queue, or a CUDA stream.
///
/// Semantics: `launch`, `record`, `wait`, copies and exchanges append a command to the lane and return without waiting
/// for it. Commands of one lane run in order, each after the end of the previous command. Different lanes run at the
/// same time. `record(m)` marks all commands that are in the lane when it is called. `wait(m)` holds back the lane's
/// later commands until all commands marked by the last `record(m)` before the call of `wait` have ended. If there was
/// no `record(m)`, the wait does nothing. A command after `wait(m)` sees the results of all marked commands, and all
/// results that the marked commands could see.
///
/// `launch(label, work)` calls `work(lane)` once. Lanes such as CUDA streams call `work` immediately, and `work` only
/// appends commands to the lane, such as kernels. Lanes such as threads call `work` when all earlier commands have
/// ended, and `work` must not append commands. `work` may wait for another rank. If each rank has its own thread, a
/// waiting rank delays no other rank. Only one thread at a time may call the lanes of a rank. After an error, no more
/// commands run, but calls still return normally until the executor's `finish` reports the error.
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
