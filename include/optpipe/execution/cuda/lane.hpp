#pragma once

#include "optpipe/core/caught_reason.hpp"
#include "optpipe/core/contract.hpp"
#include "optpipe/core/error.hpp"
#include "optpipe/execution/copy_engine.hpp"
#include "optpipe/execution/cuda/clock.hpp"
#include "optpipe/execution/cuda/device.hpp"
#include "optpipe/execution/cuda/error.hpp"
#include "optpipe/execution/cuda/progress.hpp"
#include "optpipe/execution/cuda/range.hpp"
#include "optpipe/execution/cuda/slab.hpp"
#include "optpipe/execution/cuda/stream.hpp"
#include "optpipe/execution/error.hpp"
#include "optpipe/execution/executor.hpp"
#include "optpipe/execution/lane.hpp"
#include "optpipe/execution/threads/failure.hpp"
#include "optpipe/execution/transport.hpp"
#include "optpipe/program/ir.hpp"
#include "optpipe/schedule/pair.hpp"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

namespace optpipe::cuda {

class lane;

using execution::message_end;

namespace detail {

struct marker_state {
    event done{};
    /// Number of records that were requested. `recorded` is the number of records that have been put into a stream.
    std::uint64_t asked = 0;
    std::uint64_t recorded = 0;
};

enum class command_kind : std::uint8_t { launch, record, wait, copy, exchange };

/// A command, stored until its lane can issue it.
struct command {
    using invoke_work = void (*)(const std::byte*, lane&);

    command_kind kind{};
    task_label label{};
    invoke_work invoke = nullptr;
    alignas(std::max_align_t) std::array<std::byte, execution::work_bytes> work{};
    marker_state* marker = nullptr;
    std::uint64_t number = 0;
    execution::copy_pieces pieces{};
    cudaMemcpyKind direction{};
    std::array<message_end, execution::most_messages> messages{};
    std::size_t count = 0;
};

struct lane_state;

/// Puts the messages of a lane into its stream.
class carrier {
public:
    /// Returns whether the exchange has been put into the stream. While `carry` returns false, the lane holds back
    /// later commands and repeats the call. The caller of `carry` and `forget` holds `rank_group::mutex`. A lane calls
    /// `forget` before the lane is destroyed.
    virtual bool carry(lane_state& on, command& what) = 0;
    virtual void forget(lane_state& on) noexcept = 0;
    /// Announces a lane, its kind, and its largest number of commands. Throws if the carrier can't also carry the
    /// messages of this lane. Called before all other functions, without the mutex.
    virtual void attach(lane_state&, lane_kind, std::size_t) {}
    /// Throws if running messages have failed.
    virtual void check_health() {}
    /// The first message in the streams that hasn't ended. Empty if the carrier doesn't know.
    [[nodiscard]] virtual std::optional<task_label> first_open() const { return std::nullopt; }
    /// Called when all work in the streams has ended.
    virtual void forget_messages() noexcept {}
    /// Called after a failure. Ensures that nothing on the device waits for other ranks any longer.
    virtual void abandon() noexcept {}

protected:
    ~carrier() = default;
};

/// State shared by the ranks of one process. Hold the mutex to put work into a stream, except while a model launches. A
/// model's launch may take long or wait for another rank.
struct rank_group {
    std::mutex mutex;
    std::condition_variable moved;
    threads::failure failed;
    std::vector<lane_state*> lanes;
    /// The origin of measured times for all ranks, on the clock of this process.
    device_clock::time_point begin = std::chrono::steady_clock::now();
};

/// State that the lanes of a rank share.
struct rank_place {
    rank self{};
    int device = 0;
    /// Pinned memory is divided into parts of this size in bytes.
    std::size_t pinned_part = 0;
    /// Null if times aren't measured.
    std::unique_ptr<device_clock> clock{};
    /// The thread that most recently issued a command.
    std::thread::id issuer{};
};

struct lane_state {
    lane_state(rank_group& of, rank_place& where, carrier& carries, stream_ref to, std::unique_ptr<stream> owns,
               lane_kind kind, std::size_t commands)
        : group{of}, place{where}, by{carries}, target{to}, owned{std::move(owns)}, issued{commands} {
        by.attach(*this, kind, commands);
        const std::scoped_lock lock{group.mutex};
        group.lanes.push_back(this);
    }
    lane_state(const lane_state&) = delete;
    lane_state& operator=(const lane_state&) = delete;
    ~lane_state() {
        const std::scoped_lock lock{group.mutex};
        by.forget(*this);
        group.lanes.erase(std::find(group.lanes.begin(), group.lanes.end(), this));
    }

    /// Stores the times of the tasks issued since the last call. The tasks must have ended.
    void measure() {
        if (!place.clock) return;
        for (std::size_t i = 0; i < used; ++i)
            times.push_back(place.clock->between(events[i].first, events[i].second, group.begin));
        used = 0;
    }

    rank_group& group;
    rank_place& place;
    carrier& by;
    stream_ref target;
    std::unique_ptr<stream> owned;
    /// Commands that are held back. The first held command waits for the other end of an exchange, for a marker, or for
    /// another thread.
    std::deque<command> held{};
    /// Commands issued since the executor last finished.
    progress issued;
    /// Whether the first held command is an exchange that the carrier already has.
    bool is_offered = false;
    /// Whether the first held command is being launched.
    bool is_launching = false;
    std::vector<std::pair<timed_event, timed_event>> events{};
    std::size_t used = 0;
    std::vector<execution::task_times> times{};
};

} // namespace detail

/// A point in a lane for which other lanes can wait.
class marker {
public:
    marker() : state_{std::make_unique<detail::marker_state>()} {}

private:
    friend class lane;
    std::unique_ptr<detail::marker_state> state_;
};

/// A CUDA stream as a lane.
///
/// Ranks of one process may exchange messages without NCCL. A message without NCCL waits until the threads of both
/// ranks have issued it. The lane of the first end holds back later commands until the second end is issued. Each
/// rank's own thread issues the rank's launches, with its next command or in `finish`.
class lane {
public:
    using marker = cuda::marker;

    explicit lane(std::unique_ptr<detail::lane_state> owned) : owned_{std::move(owned)}, state_{owned_.get()} {}

    /// The stream that executes the lane's commands.
    [[nodiscard]] stream_ref stream() const { return state_->target; }

    template <execution::small_work Work> void launch(const task_label& label, const Work& work) {
        detail::command c{.kind = detail::command_kind::launch, .label = label};
        c.invoke = [](const std::byte* bytes, lane& on) { (*std::launder(reinterpret_cast<const Work*>(bytes)))(on); };
        ::new (static_cast<void*>(c.work.data())) Work(work);
        put(c);
    }
    void record(marker& m) {
        std::unique_lock lock{state_->group.mutex};
        detail::command c{.kind = detail::command_kind::record};
        c.marker = m.state_.get();
        ++c.marker->asked;
        put_locked(c, lock);
    }
    void wait(const marker& m) {
        std::unique_lock lock{state_->group.mutex};
        detail::command c{.kind = detail::command_kind::wait};
        c.marker = m.state_.get();
        c.number = c.marker->asked;
        put_locked(c, lock);
    }
    void copy(const task_label& label, execution::copy_pieces pieces, cudaMemcpyKind direction) {
        detail::command c{.kind = detail::command_kind::copy, .label = label};
        c.pieces = pieces;
        c.direction = direction;
        put(c);
    }
    void exchange(execution::message_ends messages) {
        OPTPIPE_EXPECT(messages.size() <= execution::most_messages, "cuda: at most 4 messages in an exchange");
        detail::command c{.kind = detail::command_kind::exchange};
        if (!messages.empty()) c.label = messages.front().label;
        std::copy(messages.begin(), messages.end(), c.messages.begin());
        c.count = messages.size();
        put(c);
    }

    /// Times of the tasks, valid after the executor has finished.
    [[nodiscard]] std::span<const execution::task_times> times() const { return state_->times; }
    void forget_times() {
        state_->used = 0;
        state_->times.clear();
    }

private:
    friend struct flow;
    /// A handle of the lane, for use by work. The handle owns nothing.
    explicit lane(detail::lane_state& of) : state_{&of} {}

    void put(const detail::command& c) {
        std::unique_lock lock{state_->group.mutex};
        put_locked(c, lock);
    }
    void put_locked(const detail::command& c, std::unique_lock<std::mutex>& lock);

    std::unique_ptr<detail::lane_state> owned_{};
    detail::lane_state* state_;
};

/// Moves commands from lanes into streams. Callers hold the group's mutex, which is released while a model launches.
struct flow {
    using state = detail::lane_state;
    using kind = detail::command_kind;
    using lock_type = std::unique_lock<std::mutex>;

    /// Puts all commands that aren't blocked into the streams, from all lanes. Launches come last, because they may
    /// wait for other commands.
    static void drain(detail::rank_group& group, lock_type& lock) {
        do {
            while (drain_all(group, lock, false)) {
            }
            group.moved.notify_all();
        } while (drain_all(group, lock, true));
    }
    /// Whether the calling thread can now launch some held command.
    static bool has_launch(const detail::rank_group& group) {
        return std::any_of(group.lanes.begin(), group.lanes.end(), [](const auto* s) {
            return !s->held.empty() && !s->is_launching && is_launch(s->held.front()) && is_issued_here(*s);
        });
    }
    /// Returns false if the command must wait for another lane, or another thread.
    static bool try_issue(state& on, detail::command& c, lock_type& lock) {
        if (on.group.failed.happened().load()) {
            if (c.kind == kind::record) ++c.marker->recorded;
            return true;
        }
        if (is_launch(c) && !is_issued_here(on)) return false;
        try {
            // The calling thread may belong to a rank on another device.
            const current_device here{on.place.device};
            return issue(on, c, lock);
        } catch (const execution_error& e) { // another rank has failed
            on.group.failed.report(e.rank(), e.operation(), e.reason());
            on.group.moved.notify_all();
            return true;
        } catch (...) {
            fail(on, c, caught_reason());
            return true;
        }
    }
    static void fail(state& on, const detail::command& c, const std::string& reason) {
        const bool is_task = c.kind == kind::launch || c.kind == kind::copy || c.kind == kind::exchange;
        on.group.failed.report(on.place.self, is_task ? to_string(c.label) : place_of(on), reason);
        on.group.moved.notify_all();
    }

private:
    /// Unlocks the group's mutex while this object lives, and keeps other threads off the lane.
    class launching {
    public:
        launching(state& on, lock_type& lock) : on_{&on}, lock_{&lock} {
            on.is_launching = true;
            lock.unlock();
        }
        launching(const launching&) = delete;
        launching& operator=(const launching&) = delete;
        ~launching() {
            lock_->lock();
            on_->is_launching = false;
        }

    private:
        state* on_;
        lock_type* lock_;
    };

    /// If `launches` is true, issues one launch. If `launches` is false, issues all other commands that aren't blocked.
    /// Returns whether a command was issued or an exchange was offered.
    static bool drain_all(detail::rank_group& group, lock_type& lock, bool launches) {
        bool any = false;
        for (auto* s : group.lanes)
            while (!s->held.empty() && !s->is_launching && is_launch(s->held.front()) == launches) {
                const bool was_offered = s->is_offered;
                const bool is_issued = try_issue(*s, s->held.front(), lock);
                // An offered exchange counts as progress, because it may complete an exchange of another lane.
                any = any || is_issued || s->is_offered != was_offered;
                if (!is_issued) break;
                s->held.pop_front();
                s->is_offered = false;
                if (launches) return true; // other threads may add or remove lanes during a launch
            }
        return any;
    }
    static bool is_launch(const detail::command& c) { return c.kind == kind::launch; }
    static bool is_issued_here(const state& on) { return on.place.issuer == std::this_thread::get_id(); }
    /// Names the last task issued, for errors of commands that aren't tasks.
    static std::string place_of(const state& on) {
        const auto last = on.issued.last();
        return last ? "behind " + to_string(*last) : "before the first operation";
    }
    static bool issue(state& on, detail::command& c, lock_type& lock) {
        switch (c.kind) {
        case kind::launch:
            on.issued.put(c.label);
            check_last_error("an error that was left before it");
            timed(on, [&] {
                lane same{on};
                const range shown{label_text(c.label).data()};
                const launching now{on, lock};
                c.invoke(c.work.data(), same);
            });
            check_last_error("a launch whose status wasn't looked at");
            return true;
        case kind::record:
            on.target.record(c.marker->done);
            on.issued.record(c.marker->done);
            ++c.marker->recorded;
            return true;
        case kind::wait:
            if (c.marker->recorded < c.number) return false;
            if (c.number == 0) return true;
            on.target.wait(c.marker->done);
            on.issued.wait(c.marker->done);
            return true;
        case kind::copy:
            on.issued.put(c.label);
            timed(on, [&] {
                const range shown{label_text(c.label).data()};
                for (const auto& piece : c.pieces)
                    copy_by_parts(on, piece, c.direction);
            });
            return true;
        case kind::exchange:
            if (!on.is_offered) begin_timing(on);
            if (!on.by.carry(on, c)) return false;
            on.issued.put(c.label);
            end_timing(on);
            return true;
        }
        return true;
    }
    /// Splits copies at the ends of the parts of pinned memory.
    static void copy_by_parts(state& on, execution::copy_piece rest, cudaMemcpyKind direction) {
        while (!rest.from.empty()) {
            const std::byte* const host = direction == cudaMemcpyDeviceToHost ? rest.to.data() : rest.from.data();
            const auto bytes = std::min(rest.from.size(), detail::part_end(host, on.place.pinned_part));
            on.target.copy(rest.to.data(), rest.from.data(), bytes, direction);
            rest = {rest.to.subspan(bytes), rest.from.subspan(bytes)};
        }
    }
    template <class Issue> static void timed(state& on, Issue issue_work) {
        begin_timing(on);
        issue_work();
        end_timing(on);
    }
    static void begin_timing(state& on) {
        if (!on.place.clock) return;
        on.place.clock->begin_step();
        if (on.used == on.events.size()) on.events.emplace_back();
        on.target.record(on.events[on.used].first);
    }
    static void end_timing(state& on) {
        if (on.place.clock) on.target.record(on.events[on.used++].second);
    }
    /// The label as text, such as "PP:2F0". Doesn't allocate memory.
    static std::array<char, 80> label_text(const task_label& label) {
        std::array<char, 80> text{'P', 'P', ':'};
        char* at = text.data() + 3;
        if (label.kind == task_label::task_kind::pair) {
            const auto pair = spelling(operation_pair{label.op, label.backward});
            *std::copy(pair.view().begin(), pair.view().end(), at) = '\0';
            return text;
        }
        at = std::to_chars(at, text.end(), label.op.stage.value()).ptr;
        const bool updates = label.kind == task_label::task_kind::update;
        const bool reduces = label.kind == task_label::task_kind::reduce;
        const auto letters = updates   ? std::string_view{"UPDATE"}
                             : reduces ? std::string_view{"REDUCE"}
                                       : spelling(label.op.kind);
        at = std::copy(letters.begin(), letters.end(), at);
        if (!updates && !reduces) at = std::to_chars(at, text.end() - 1, label.op.microbatch.value()).ptr;
        *at = '\0';
        return text;
    }
};

inline void lane::put_locked(const detail::command& c, std::unique_lock<std::mutex>& lock) {
    auto& s = *state_;
    s.place.issuer = std::this_thread::get_id();
    const bool can_launch = flow::has_launch(s.group); // other threads may have made launches possible
    s.held.push_back(c);
    const bool is_first = s.held.size() == 1;
    // A lane can only wait for a record or an exchange of another lane.
    const bool gives = c.kind == detail::command_kind::record || c.kind == detail::command_kind::exchange;
    if (can_launch || (is_first && gives)) return flow::drain(s.group, lock);
    if (is_first && flow::try_issue(s, s.held.front(), lock)) s.held.pop_front();
}

static_assert(execution::check_lane<lane>());
static_assert(execution::timed_lane<lane>);

} // namespace optpipe::cuda
