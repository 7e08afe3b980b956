#pragma once

#include "optpipe/program/ir.hpp"

#include <concepts>
#include <cstddef>
#include <type_traits>

namespace optpipe::execution {

/// The largest work that has to be taken by `launch`. Work is trivially copyable, so that nothing is allocated for it.
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

/// Something that does one thing after the other, beside the thread that tells it what: a thread with a queue, a CUDA
/// stream.
///
/// Semantics: `launch`, `record`, `wait`, copies and exchanges put something at the end of the lane and return without
/// waiting for it. What is in one lane happens in order, each once the one before is over; two lanes happen at the same
/// time. `record(m)` marks what is in the lane so far; `wait(m)` holds back what comes behind it in the lane until all
/// that the last `record(m)` before it marked is over, and nothing if there was none. What is over before a wait ends
/// is seen by what follows it. `launch(label, work)` calls `work(lane)` once: at once, if that only puts something into
/// the lane (as a kernel into a stream), or when its turn comes; then it may not put in anything more. It may wait for
/// what another rank does, which holds up its own rank alone, if that has a thread of its own. One thread at a time
/// calls all of a rank's lanes. After an error nothing more is done, but calls return as before, until `finish` of
/// the executor says so.
template <class L> concept lane = std::movable<L> && has_marker<L> && has_launch<L> && has_record<L> && has_wait<L>;

/// The sentence that a type lacks to be a lane.
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
