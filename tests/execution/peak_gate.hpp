#pragma once

#include "optpipe/pipeline/problem.hpp"
#include "optpipe/program/ir.hpp"
#include "optpipe/program/lower/plan_graph.hpp"
#include "optpipe/schedule/operation.hpp"
#include "optpipe/schedule/schedule.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <map>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

/// Makes one rank hold the memory of its plan's peaks at once, on the device and on the host, with any timing:
/// operations that free a buffer of the peak don't end until all of them have been acquired. In the plan's own times
/// this is the case, so waits form no cycle. For one step on lanes that work in order, on links that aren't shared.
class peak_gate {
public:
    using operation = optpipe::operation;
    using nanoseconds = std::chrono::nanoseconds;

    peak_gate(const optpipe::problem& p, const optpipe::schedule& s, const optpipe::rank_program& mine) {
        const optpipe::detail::plan_graph plan{p, s, optpipe::message_lanes::separate};
        plan_times times;
        for (const auto& node : plan.nodes())
            if (!node.is_message()) times[plain(plan.operation_of(node).op)] = {node.start, node.end};
        for (std::size_t i = 0; i < peaks_.size(); ++i)
            peaks_[i] = find_peak(times, mine, i == 0 ? optpipe::memory_arena::device : optpipe::memory_arena::host);
    }
    peak_gate(const peak_gate&) = delete;
    peak_gate& operator=(const peak_gate&) = delete;

    /// Called when an operation has begun; it may end after that.
    void pass(const operation& passing) {
        const auto op = plain(passing);
        std::unique_lock lock{mutex_};
        for (auto& each : peaks_)
            std::erase(each.missing, op);
        changed_.notify_all();
        for (auto& each : peaks_)
            if (holds(each, op)) wait_for(each, lock);
    }
    /// The same for a copy; returns the time that it must take. By the lane's clock it starts when its inputs are
    /// available, after this gate was made. So the first copy that is held ends late enough, and so do those behind it.
    nanoseconds pass_copy(const operation& op) {
        std::this_thread::sleep_until(copied_until());
        pass(op);
        const std::scoped_lock lock{mutex_};
        const auto now = clock::now();
        nanoseconds length{};
        for (auto& each : peaks_)
            if (holds(each, plain(op)) && !std::exchange(each.has_copied, true)) length = now - made_;
        copied_until_ = std::max(copied_until_, now + length);
        return length;
    }

private:
    using clock = std::chrono::steady_clock;

    struct interval {
        std::size_t start = 0;
        std::size_t end = 0;
    };
    using plan_times = std::map<operation, interval>;

    /// Operations that acquire the buffers of a peak and haven't begun yet, and operations that free them.
    struct peak {
        std::vector<operation> missing;
        std::vector<operation> held;
        bool has_copied = false;
    };

    static interval lifetime(const plan_times& times, const optpipe::rank_program& mine,
                             const optpipe::program_buffer& b) {
        return {times.at(plain(mine.instructions[b.first_use].op)).start,
                times.at(plain(mine.instructions[b.last_use].op)).end};
    }
    /// The buffers held at the instant with the most bytes.
    static peak find_peak(const plan_times& times, const optpipe::rank_program& mine, optpipe::memory_arena arena) {
        const auto bytes_at = [&](std::size_t instant) {
            std::size_t bytes = 0;
            for (const auto& b : mine.buffers)
                if (const auto [start, end] = lifetime(times, mine, b);
                    b.arena == arena && start <= instant && instant < end)
                    bytes += b.bytes;
            return bytes;
        };
        std::pair<std::size_t, std::size_t> most{0, 0};
        for (const auto& b : mine.buffers) {
            if (b.arena != arena) continue;
            const auto instant = lifetime(times, mine, b).start;
            most = std::max(most, {bytes_at(instant), instant});
        }
        peak found;
        for (const auto& b : mine.buffers) {
            if (b.arena != arena) continue;
            const auto [start, end] = lifetime(times, mine, b);
            if (start > most.second || end <= most.second) continue;
            found.missing.push_back(as_called(mine.instructions[b.first_use].op));
            found.held.push_back(as_called(mine.instructions[b.last_use].op));
        }
        return found;
    }
    /// The operation without its storage option, alone or in a pair. A pair is named after its forward.
    static operation plain(operation op) {
        op.storage = 0;
        op.is_paired = false;
        return op;
    }
    /// A model without its own B is called with I, then with W.
    static operation as_called(operation op) {
        op = plain(op);
        if (op.kind == optpipe::operation_kind::backward) op.kind = optpipe::operation_kind::backward_input;
        return op;
    }
    static bool holds(const peak& p, const operation& op) {
        return std::find(p.held.begin(), p.held.end(), op) != p.held.end();
    }
    [[nodiscard]] clock::time_point copied_until() {
        const std::scoped_lock lock{mutex_};
        return copied_until_;
    }
    /// Doesn't wait forever; the mark then tells that the wait failed.
    void wait_for(const peak& p, std::unique_lock<std::mutex>& lock) {
        using namespace std::chrono_literals;
        if (!given_up_) given_up_ = !changed_.wait_for(lock, 20s, [&] { return p.missing.empty() || given_up_; });
    }

    const clock::time_point made_ = clock::now();
    std::mutex mutex_;
    std::condition_variable changed_;
    std::array<peak, 2> peaks_{};
    clock::time_point copied_until_ = made_;
    bool given_up_ = false;
};
