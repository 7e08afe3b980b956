#pragma once

#include "optpipe/core/compiled.hpp"
#include "optpipe/execution/copy_engine.hpp"
#include "optpipe/execution/executor.hpp"
#include "optpipe/execution/lane.hpp"
#include "optpipe/execution/threads/marker.hpp"
#include "optpipe/execution/threads/world.hpp"
#include "optpipe/execution/transport.hpp"

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <span>
#include <thread>
#include <utility>
#include <vector>

namespace optpipe::threads {

class lane;

struct lane_command {
    enum class what_kind : std::uint8_t { launch, record, wait, copy, exchange, stop };
    what_kind what = what_kind::stop;
    task_label label{};
    marker_state* marker = nullptr;
    std::uint32_t count = 0;
    execution::copy_pieces pieces{};
    /// For copies and exchanges, the time when the command was appended to the lane.
    nanoseconds issued{};
    void (*call)(const std::byte*, lane&) = nullptr;
    alignas(std::max_align_t) std::array<std::byte, execution::work_bytes> work{};
    std::array<message_offer, execution::most_messages> offers{};
};

/// A lane's queue, and the thread that executes its commands. One thread appends commands, and another removes them.
class lane_thread {
public:
    lane_thread(rank_state& of, std::size_t commands, lane& handle);
    lane_thread(const lane_thread&) = delete;
    lane_thread& operator=(const lane_thread&) = delete;
    ~lane_thread();

    /// A slot for the next command. Waits while the queue is full.
    lane_command& next();
    void publish();
    void put(const lane_command& c);
    [[nodiscard]] bool is_idle() const;
    void move_to(lane& handle) { handle_.store(&handle, std::memory_order_release); }

    [[nodiscard]] rank_state& of() const { return of_; }
    [[nodiscard]] std::vector<execution::task_times>& times() { return times_; }

private:
    using what_kind = lane_command::what_kind;

    [[nodiscard]] bool is_over() const;

    void work();
    void perform(const lane_command& c);
    /// Executes a command. Throws the exceptions of the model, and of the functions in `options` for the times of
    /// copies and messages.
    void attempt(const lane_command& c);
    void launch(const lane_command& c);
    /// Copies immediately. Dependent work starts only after the simulated duration of the copy.
    void copy(const lane_command& c);
    void exchange(const lane_command& c);
    void withdraw(const lane_command& c);
    bool falls_silent(const task_label& label);
    void remember(nanoseconds start, nanoseconds end);

    rank_state& of_;
    std::atomic<lane*> handle_;
    exchange_gate gate_;
    std::vector<lane_command> ring_;
    std::vector<execution::task_times> times_;
    std::atomic<std::uint32_t> put_{0};
    std::atomic<std::uint32_t> taken_{0};
    /// The time at which all results for the next command are ready. `over_` is the end of the last command.
    nanoseconds ready_{};
    nanoseconds over_{};
    std::thread thread_;
};

/// A lane that is a thread.
class lane {
public:
    using marker = threads::marker;

    lane(rank_state& of, std::size_t commands) : thread_{std::make_unique<lane_thread>(of, commands, *this)} {}
    lane(lane&& other) noexcept : thread_{std::move(other.thread_)} { thread_->move_to(*this); }
    lane& operator=(lane&& other) noexcept;
    ~lane() = default;

    template <class Work> void launch(const task_label& label, const Work& work) {
        static_assert(execution::small_work<Work>, "lane: work must be trivially copyable and at most 48 bytes large");
        auto& c = thread_->next();
        c.what = lane_command::what_kind::launch;
        c.label = label;
        ::new (static_cast<void*>(c.work.data())) Work(work);
        c.call = [](const std::byte* stored, lane& on) { (*std::launder(reinterpret_cast<const Work*>(stored)))(on); };
        thread_->publish();
    }
    void record(marker& m);
    void wait(const marker& m);
    [[nodiscard]] std::span<const execution::task_times> times() const { return thread_->times(); }
    void forget_times() { thread_->times().clear(); }

private:
    friend class copy_engine;
    friend class transport;
    friend class executor;

    std::unique_ptr<lane_thread> thread_;
};

static_assert(execution::check_lane<lane>() && execution::timed_lane<lane>);

} // namespace optpipe::threads

#if OPTPIPE_DEFINES(execution)
#include "optpipe/core/caught_reason.hpp"
#include "optpipe/core/contract.hpp"

#include <algorithm>
#include <bit>
#include <cstring>
#include <string>

namespace optpipe::threads {

OPTPIPE_INLINE lane_thread::lane_thread(rank_state& of, std::size_t commands, lane& handle)
    : of_{of}, handle_{&handle}, gate_{of.all.failed}, ring_(std::bit_ceil(commands + 2)) {
    if (of.all.how.record_times) times_.reserve(commands);
    of_.enter(*this);
    try {
        thread_ = std::thread{[this] { work(); }};
    } catch (...) {
        of_.leave(*this);
        throw;
    }
}

OPTPIPE_INLINE lane_thread::~lane_thread() {
    put({});
    thread_.join();
    of_.leave(*this);
}

OPTPIPE_INLINE lane_command& lane_thread::next() {
    const auto mine = put_.load(std::memory_order_relaxed);
    for (auto taken = taken_.load(std::memory_order_acquire); mine - taken == ring_.size();
         taken = taken_.load(std::memory_order_acquire))
        taken_.wait(taken, std::memory_order_acquire);
    return ring_[mine & (ring_.size() - 1)];
}

OPTPIPE_INLINE void lane_thread::publish() {
    put_.fetch_add(1, std::memory_order_release);
    put_.notify_one();
}

OPTPIPE_INLINE void lane_thread::put(const lane_command& c) {
    next() = c;
    publish();
}

OPTPIPE_INLINE bool lane_thread::is_idle() const {
    return taken_.load(std::memory_order_acquire) == put_.load(std::memory_order_relaxed);
}

OPTPIPE_INLINE bool lane_thread::is_over() const {
    return of_.silent.load(std::memory_order_relaxed) || of_.all.failed.happened().load(std::memory_order_relaxed);
}

OPTPIPE_INLINE void lane_thread::work() {
    sleep_precisely();
    for (;;) {
        const auto at = taken_.load(std::memory_order_relaxed);
        put_.wait(at, std::memory_order_acquire);
        const auto& c = ring_[at & (ring_.size() - 1)];
        if (c.what == what_kind::stop) return;
        if (!is_over()) perform(c);
        taken_.store(at + 1, std::memory_order_release);
        taken_.notify_one();
        if (put_.load(std::memory_order_acquire) != at + 1) continue;
        const std::scoped_lock lock{of_.mutex};
        of_.idle.notify_all();
    }
}

OPTPIPE_INLINE void lane_thread::perform(const lane_command& c) {
    try {
        attempt(c);
    } catch (...) {
        of_.all.failed.report(of_.self, to_string(c.label), caught_reason());
        if (c.what == what_kind::exchange) withdraw(c);
    }
}

OPTPIPE_INLINE void lane_thread::attempt(const lane_command& c) {
    switch (c.what) {
    case what_kind::launch: return launch(c);
    case what_kind::record: return c.marker->reach(c.count, over_);
    case what_kind::wait: ready_ = std::max(ready_, c.marker->await(c.count)); return;
    case what_kind::copy: return copy(c);
    case what_kind::exchange: return exchange(c);
    case what_kind::stop: return;
    }
}

OPTPIPE_INLINE void lane_thread::launch(const lane_command& c) {
    const auto& clock = of_.all.clock;
    clock.sleep_until(std::max(ready_, over_), of_.all.failed.happened());
    if (falls_silent(c.label) || is_over()) return;
    const auto start = of_.all.how.record_times ? clock.now() : nanoseconds{};
    c.call(c.work.data(), *handle_.load(std::memory_order_acquire));
    over_ = ready_ = clock.now();
    remember(start, over_);
}

OPTPIPE_INLINE void lane_thread::copy(const lane_command& c) {
    auto& all = of_.all;
    std::size_t bytes = 0;
    for (const auto& piece : c.pieces)
        bytes += piece.from.size();
    const auto length = all.how.copies ? all.how.copies(of_.self, c.label, bytes) : nanoseconds{};
    // A copy starts when its inputs are ready, even if this thread runs later.
    const auto ready = std::max({ready_, over_, c.issued});
    all.clock.sleep_until(ready, all.failed.happened());
    if (falls_silent(c.label) || is_over()) return;
    const auto start = all.links.take(of_.self, c.label.op.kind == operation_kind::reload, ready, length);
    const auto begin = all.clock.now();
    for (const auto& piece : c.pieces)
        if (!piece.from.empty()) std::memcpy(piece.to.data(), piece.from.data(), piece.from.size());
    over_ = ready_ = start + std::max(length, all.clock.now() - begin);
    remember(start, over_);
}

OPTPIPE_INLINE void lane_thread::exchange(const lane_command& c) {
    auto& all = of_.all;
    const auto start = std::max(ready_, c.issued);
    gate_.open(c.count);
    for (std::size_t i = 0; i < c.count; ++i) {
        auto mine = c.offers[i];
        mine.ready = start;
        mine.gate = &gate_;
        all.messages.offer(of_.self, mine);
    }
    const bool met = gate_.await(all.how.patience);
    if (!met) {
        if (!is_over())
            all.failed.report(
                of_.self, to_string(c.label),
                "rank " + std::to_string(c.label.peer.value()) + " hasn't come for it within " +
                    std::to_string(std::chrono::duration_cast<std::chrono::milliseconds>(all.how.patience).count()) +
                    " ms");
        return withdraw(c);
    }
    over_ = std::max(over_, gate_.over());
    remember(start, over_);
    // The next command may overlap with a message, because a link carries several messages at once.
    ready_ = start;
}

OPTPIPE_INLINE void lane_thread::withdraw(const lane_command& c) {
    for (std::size_t i = 0; i < c.count; ++i) {
        auto mine = c.offers[i];
        mine.gate = &gate_;
        of_.all.messages.withdraw(of_.self, mine);
    }
}

OPTPIPE_INLINE bool lane_thread::falls_silent(const task_label& label) {
    const auto& silent_at = of_.all.how.faults.silent_at;
    if (!silent_at) return false;
    const bool is_pair = label.kind == task_label::task_kind::pair;
    const bool is_first = is_pair || label.kind == task_label::task_kind::operation;
    if (!(is_first && is_same_work(*silent_at, label.op)) && !(is_pair && is_same_work(*silent_at, label.backward)))
        return false;
    of_.silent.store(true);
    return true;
}

OPTPIPE_INLINE void lane_thread::remember(nanoseconds start, nanoseconds end) {
    if (of_.all.how.record_times && times_.size() < times_.capacity()) times_.push_back({start, end});
}

OPTPIPE_INLINE lane& lane::operator=(lane&& other) noexcept {
    thread_ = std::move(other.thread_);
    thread_->move_to(*this);
    return *this;
}

OPTPIPE_INLINE void lane::record(marker& m) {
    auto& c = thread_->next();
    c.what = lane_command::what_kind::record;
    c.marker = &m.state();
    c.count = m.state().record();
    thread_->publish();
}

OPTPIPE_INLINE void lane::wait(const marker& m) {
    auto& c = thread_->next();
    c.what = lane_command::what_kind::wait;
    c.marker = &m.state();
    c.count = m.state().recorded();
    thread_->publish();
}

} // namespace optpipe::threads
#endif
