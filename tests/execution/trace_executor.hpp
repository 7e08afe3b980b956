#pragma once

#include "optpipe/core/container.hpp"
#include "optpipe/core/error.hpp"
#include "optpipe/core/random.hpp"
#include "optpipe/execution/error.hpp"
#include "optpipe/execution/executor.hpp"
#include "optpipe/execution/measured.hpp"
#include "optpipe/execution/transport.hpp"
#include "optpipe/pipeline/problem.hpp"
#include "optpipe/program/ir.hpp"
#include "optpipe/schedule/operation.hpp"
#include "optpipe/schedule/pair.hpp"
#include "optpipe/schedule/schedule.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <exception>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <numeric>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

namespace optpipe::testing {

using virtual_time = std::chrono::nanoseconds;

/// Durations of tasks on virtual time, and their earliest starts.
struct trace_costs {
    std::function<virtual_time(const task_label&)> length{};
    /// The time from when both ends of a message are ready until its data has arrived.
    std::function<virtual_time(rank from, rank to)> message{};
    /// The earliest start of a task; empty: no restriction.
    std::function<virtual_time(const task_label&)> not_before{};
    /// Seed of the order in which lanes run if several can. The order that waits enforce, and all times, don't depend
    /// on it.
    std::uint64_t seed = 0;
};

/// One billionth of the problem's unit of time.
[[nodiscard]] inline virtual_time to_virtual(duration t) { return virtual_time{std::llround(t.value() * 1e9)}; }

/// The durations of the problem. With `paced`, no operation starts before its start in that schedule, which must
/// outlive the result.
[[nodiscard]] inline trace_costs planned_costs(const problem& p, const schedule* paced = nullptr) {
    trace_costs costs;
    costs.length = [p](const task_label& what) {
        if (what.kind == task_label::task_kind::pair)
            return to_virtual(pair_duration(p, *overlap_of(p, what.op, what.backward), what.op, what.backward));
        return what.kind == task_label::task_kind::operation ? to_virtual(duration_of(p, what.op)) : virtual_time{};
    };
    costs.message = [hops = p.p2p](rank from, rank to) { return to_virtual(hops(from, to)); };
    if (!paced) return costs;
    const operation_numbering<any_graph> number{p.graph};
    std::vector<virtual_time> start(number.size());
    for (const auto& timed : paced->operations)
        start[number(timed.op)] = to_virtual(timed.start);
    costs.not_before = [number, start = std::move(start)](const task_label& what) {
        const bool is_planned =
            what.kind == task_label::task_kind::operation || what.kind == task_label::task_kind::pair;
        return is_planned ? start[number(what.op)] : virtual_time{};
    };
    return costs;
}

namespace detail {

struct trace_marker_state {
    std::uint32_t recorded = 0;
    /// For each record: the time when the marked commands ended, as far as known.
    std::vector<virtual_time> reached;
};
struct trace_lane_state;

} // namespace detail

class trace_world;

class trace_marker {
public:
    trace_marker() : state_{std::make_shared<detail::trace_marker_state>()} {}

private:
    friend class trace_lane;
    std::shared_ptr<detail::trace_marker_state> state_;
};

/// A lane that only notes its commands.
class trace_lane {
public:
    using marker = trace_marker;

    template <execution::small_work Work> void launch(const task_label& label, const Work& work);
    void record(marker& m);
    void wait(const marker& m);
    [[nodiscard]] std::span<const execution::task_times> times() const;
    void forget_times();

private:
    friend class trace_world;
    friend class trace_executor;
    trace_lane(trace_world& in, detail::trace_lane_state& state) : in_{&in}, state_{&state} {}

    trace_world* in_;
    detail::trace_lane_state* state_;
};

namespace detail {

struct trace_command {
    enum class what_kind : std::uint8_t { launch, record, wait, copy, exchange };
    what_kind what{};
    task_label label{};
    std::function<void(trace_lane&)> work{};
    std::shared_ptr<trace_marker_state> marker{};
    std::uint32_t count = 0;
    execution::copy_pieces pieces{};
    std::vector<execution::message_end> messages{};
};
struct trace_lane_state {
    rank self{};
    lane_kind kind{};
    std::deque<trace_command> commands{};
    std::vector<execution::task_times> times{};
    virtual_time ready{};
    virtual_time over{};
    /// For an exchange that has begun: number of messages that haven't met, and the end of the last message that has.
    bool begun = false;
    std::size_t left = 0;
    virtual_time met{};
};

} // namespace detail

/// All ranks on one virtual time. The thread that asks for results runs the commands in the lanes, in an order that
/// depends on the programs alone. Instead of hanging, it reports the rank that is stuck.
class trace_world {
public:
    explicit trace_world(std::size_t ranks, trace_costs costs = {})
        : ranks_{ranks}, costs_{std::move(costs)}, random_{costs_.seed} {}

    [[nodiscard]] std::size_t ranks() const { return ranks_; }

    /// Runs all commands that can run. False if commands remain whose dependencies can never be met.
    bool play() {
        const std::scoped_lock lock{mutex_};
        return play_locked();
    }
    /// Reports the remaining commands after `play` as a failure.
    void give_up() {
        const std::scoped_lock lock{mutex_};
        report_stuck();
    }
    /// The failure, if there is one.
    [[nodiscard]] std::optional<execution_error> failed() const {
        const std::scoped_lock lock{mutex_};
        return failure_;
    }

    // For lanes and executors.
    detail::trace_lane_state& open(rank self, lane_kind kind) {
        const std::scoped_lock lock{mutex_};
        auto& made = *lanes_.emplace_back(std::make_unique<detail::trace_lane_state>());
        made.self = self;
        made.kind = kind;
        return made;
    }
    template <class Change> void with_lock(const Change& change) {
        const std::scoped_lock lock{mutex_};
        change();
    }
    void fail(rank where, const std::string& operation, const std::string& reason) {
        const std::scoped_lock lock{mutex_};
        fail_locked(where, operation, reason);
    }
    void finish(rank self) {
        std::unique_lock lock{mutex_};
        ++finishing_;
        while (!failure_) {
            play_locked();
            changed_.notify_all();
            if (failure_ || is_idle(self)) break;
            // No other rank can add commands; a rank with nothing to wait for is about to return.
            if (finishing_ == ranks_ && nobody_is_idle())
                report_stuck();
            else
                changed_.wait(lock);
        }
        --finishing_;
        changed_.notify_all();
        if (failure_) throw *failure_;
    }

private:
    using what_kind = detail::trace_command::what_kind;
    static constexpr std::size_t all_of_it = std::numeric_limits<std::size_t>::max();
    struct offer {
        detail::trace_lane_state* lane;
        execution::message_end message;
        virtual_time ready;
    };

    [[nodiscard]] bool is_idle(rank self) const {
        return std::all_of(lanes_.begin(), lanes_.end(),
                           [&](const auto& l) { return l->self != self || l->commands.empty(); });
    }
    [[nodiscard]] bool nobody_is_idle() const {
        for (const rank r : index_range<rank>{ranks_})
            if (is_idle(r)) return false;
        return true;
    }
    bool play_locked() {
        std::vector<std::size_t> order(lanes_.size());
        std::iota(order.begin(), order.end(), std::size_t{0});
        for (bool moved = true; moved;) {
            moved = false;
            if (costs_.seed != 0)
                for (std::size_t i = order.size(); i > 1; --i)
                    std::swap(order[i - 1], order[random_.below(i)]);
            for (const auto i : order)
                for (auto left = costs_.seed == 0 ? all_of_it : random_.below(8);
                     left > 0 && !failure_ && !lanes_[i]->commands.empty(); --left) {
                    const bool advanced = advance(*lanes_[i]);
                    moved = moved || advanced;
                    if (!advanced) break;
                }
            if (!moved && costs_.seed != 0) moved = any_can_advance();
        }
        return std::all_of(lanes_.begin(), lanes_.end(), [](const auto& l) { return l->commands.empty(); });
    }
    /// Tries the lanes in a fixed order, if the random order found none that can continue.
    bool any_can_advance() {
        for (auto& l : lanes_)
            if (!failure_ && !l->commands.empty() && advance(*l)) return true;
        return false;
    }
    void fail_locked(rank where, const std::string& operation, const std::string& reason) {
        if (failure_) return;
        failure_.emplace(where, operation, reason);
        for (auto& l : lanes_)
            l->commands.clear();
        offers_.clear();
        changed_.notify_all();
    }
    void report_stuck() {
        for (const auto& l : lanes_)
            if (!l->commands.empty() && l->commands.front().what == what_kind::exchange)
                return fail_locked(l->self, to_string(l->commands.front().label), "nobody comes for it");
        for (const auto& l : lanes_)
            if (!l->commands.empty()) return fail_locked(l->self, std::string{spelling(l->kind)}, "is stuck");
    }

    /// Runs the next command of the lane. False if it can't run yet.
    bool advance(detail::trace_lane_state& l) {
        auto& c = l.commands.front();
        switch (c.what) {
        case what_kind::launch: perform(l, c); break;
        case what_kind::copy: perform(l, c); break;
        case what_kind::record:
            c.marker->reached.resize(c.count, l.over);
            c.marker->reached.back() = l.over;
            break;
        case what_kind::wait:
            if (c.marker->reached.size() < c.count) return false;
            if (c.count > 0) l.ready = std::max(l.ready, c.marker->reached[c.count - 1]);
            break;
        case what_kind::exchange:
            if (!exchange(l, c)) return false;
            break;
        }
        if (!l.commands.empty()) l.commands.pop_front();
        return true;
    }
    void perform(detail::trace_lane_state& l, detail::trace_command& c) {
        auto start = std::max(l.ready, l.over);
        if (costs_.not_before) start = std::max(start, costs_.not_before(c.label));
        const auto what = c.label;
        try {
            trace_lane handle{*this, l};
            if (c.work) c.work(handle);
            for (const auto& piece : c.pieces)
                if (!piece.from.empty()) std::memcpy(piece.to.data(), piece.from.data(), piece.from.size());
        } catch (const std::exception& e) {
            return fail_locked(l.self, to_string(what), e.what());
        }
        l.ready = l.over = start + (costs_.length ? costs_.length(what) : virtual_time{});
        l.times.push_back({start, l.over});
    }
    bool exchange(detail::trace_lane_state& l, const detail::trace_command& c) {
        if (!l.begun) {
            l.begun = true;
            l.left = c.messages.size();
            l.met = l.ready;
            const auto messages = c.messages; // a failure clears the lanes
            for (const auto& m : messages)
                if (!failure_) meet({&l, m, l.ready});
        }
        if (failure_ || l.left > 0) return false;
        l.begun = false;
        l.over = std::max(l.over, l.met);
        l.times.push_back({l.ready, l.over});
        return true;
    }
    void meet(const offer& mine) {
        const rank self = mine.lane->self;
        const rank peer = mine.message.label.peer;
        const auto [from, to] = mine.message.sends ? std::pair{self, peer} : std::pair{peer, self};
        auto& waiting = offers_[{from, to, direction_of(mine.message.label.op)}];
        if (waiting.empty() || waiting.front().message.sends == mine.message.sends) return waiting.push_back(mine);
        const auto other = waiting.front();
        waiting.pop_front();
        const auto& sent = mine.message.sends ? mine : other;
        const auto& received = mine.message.sends ? other : mine;
        if (sent.message.label.op != received.message.label.op || sent.message.bytes != received.message.bytes)
            return fail_locked(received.lane->self, to_string(received.message.label),
                               to_string(sent.message.label) + " came, or another number of bytes");
        if (sent.message.bytes > 0) std::memcpy(received.message.to, sent.message.from, sent.message.bytes);
        const auto over =
            std::max(sent.ready, received.ready) + (costs_.message ? costs_.message(from, to) : virtual_time{});
        for (const auto& end : {sent, received}) {
            end.lane->met = std::max(end.lane->met, over);
            --end.lane->left;
        }
    }

    std::size_t ranks_;
    trace_costs costs_;
    random_numbers random_;
    mutable std::mutex mutex_;
    std::condition_variable changed_;
    std::vector<std::unique_ptr<detail::trace_lane_state>> lanes_;
    std::map<std::tuple<rank, rank, message_direction>, std::deque<offer>> offers_;
    std::optional<execution_error> failure_;
    std::size_t finishing_ = 0;
};

template <execution::small_work Work> void trace_lane::launch(const task_label& label, const Work& work) {
    in_->with_lock([&] {
        state_->commands.push_back({.what = detail::trace_command::what_kind::launch, .label = label, .work = work});
    });
}
inline void trace_lane::record(marker& m) {
    in_->with_lock([&] {
        state_->commands.push_back(
            {.what = detail::trace_command::what_kind::record, .marker = m.state_, .count = ++m.state_->recorded});
    });
}
inline void trace_lane::wait(const marker& m) {
    in_->with_lock([&] {
        state_->commands.push_back(
            {.what = detail::trace_command::what_kind::wait, .marker = m.state_, .count = m.state_->recorded});
    });
}
inline std::span<const execution::task_times> trace_lane::times() const { return state_->times; }
inline void trace_lane::forget_times() { state_->times.clear(); }

class trace_slab {
public:
    explicit trace_slab(std::size_t bytes) : bytes_(bytes, std::byte{0xa5}) {}
    [[nodiscard]] std::span<std::byte> memory() const { return bytes_; }

private:
    mutable std::vector<std::byte> bytes_;
};

/// One rank of a traced world, with its copies, transport and memory. `finish` runs the commands of all ranks. It may
/// be called from a thread per rank, or, once all ranks have issued, from a single thread.
class trace_executor {
public:
    using lane_type = trace_lane;

    trace_executor(trace_world& in, rank self) : in_{&in}, self_{self} {}

    [[nodiscard]] rank self() const { return self_; }
    [[nodiscard]] std::size_t ranks() const { return in_->ranks(); }
    [[nodiscard]] trace_lane open_lane(lane_kind kind, std::size_t) { return {*in_, in_->open(self_, kind)}; }
    [[nodiscard]] trace_marker make_marker() { return {}; }
    [[nodiscard]] trace_executor& copies() { return *this; }
    [[nodiscard]] trace_executor& transport() { return *this; }
    [[nodiscard]] trace_executor& memory() { return *this; }
    void finish() { in_->finish(self_); }
    void cancel(std::string_view what_it_did, std::string_view reason) {
        in_->fail(self_, std::string{what_it_did}, std::string{reason});
    }

    void copy(trace_lane& on, execution::copy_direction, const task_label& label, execution::copy_pieces pieces) {
        in_->with_lock([&] {
            on.state_->commands.push_back(
                {.what = detail::trace_command::what_kind::copy, .label = label, .pieces = pieces});
        });
    }
    void exchange(trace_lane& on, execution::message_ends messages) {
        in_->with_lock([&] {
            auto& put = on.state_->commands.emplace_back();
            put.what = detail::trace_command::what_kind::exchange;
            if (!messages.empty()) put.label = messages.front().label;
            put.messages.assign(messages.begin(), messages.end());
        });
    }
    [[nodiscard]] trace_slab device(std::size_t bytes) { return trace_slab{bytes}; }
    [[nodiscard]] trace_slab host(std::size_t bytes) { return trace_slab{bytes}; }

private:
    trace_world* in_;
    rank self_;
};

static_assert(execution::check_executor<trace_executor>() && execution::timed_lane<trace_lane>);

} // namespace optpipe::testing
