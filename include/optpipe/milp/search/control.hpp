#pragma once

#include "optpipe/core/deadline.hpp"
#include "optpipe/milp/options.hpp"
#include "optpipe/milp/result.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <functional>
#include <limits>
#include <mutex>
#include <optional>
#include <stop_token>
#include <utility>

namespace optpipe::milp::search {

/// The clock, limits and counters of one search. All members may be called from any thread.
class control {
public:
    using clock = std::chrono::steady_clock;

    /// `above` is the control of the outer search, if any, and also counts this search's memory.
    explicit control(const solve_options& options, control* above = nullptr)
        : parent_{above}, start_{clock::now()}, deadline_{deadline_after(start_, options.time_limit)},
          node_limit_{options.node_limit}, memory_limit_{options.memory_limit}, counts_matter_{!options.deterministic},
          user_stop_{options.stop, forward{&source_, &asked_}} {}
    control(const control&) = delete;
    control& operator=(const control&) = delete;

    [[nodiscard]] double seconds() const { return std::chrono::duration<double>(clock::now() - start_).count(); }
    [[nodiscard]] clock::time_point deadline() const { return deadline_; }
    /// The token requests a stop when the search should end for any reason except the time limit.
    [[nodiscard]] std::stop_token token() const { return source_.get_token(); }

    /// Whether the search should end. Records the limit that was met first.
    [[nodiscard]] bool over() {
        if (source_.stop_requested()) {
            if (asked_.load()) note(limit::stop_requested);
            return true;
        }
        if (clock::now() >= deadline_) return end(limit::time);
        return counts_matter_ && over_counts();
    }
    /// Checks the limits of nodes, iterations and memory. In deterministic mode, `over` doesn't check these limits.
    [[nodiscard]] bool over_counts() {
        if (nodes() >= node_limit_ || iterations() >= iteration_limit_) return end(limit::nodes);
        if (memory() > countable()) return end(limit::memory);
        return false;
    }
    /// Limits the simplex iterations. At this limit, a search ends as at the node limit.
    void limit_iterations(std::size_t most) { iteration_limit_ = most; }
    bool end(limit why) {
        note(why);
        source_.request_stop();
        return true;
    }
    /// Stops the search without a reason. The caller goes on, and gives the reason.
    void halt() { source_.request_stop(); }
    /// Marks the search as finished, and stops it.
    void finish() {
        finished_.store(true);
        source_.request_stop();
    }
    [[nodiscard]] bool finished() const { return finished_.load(); }
    [[nodiscard]] std::optional<limit> reason() const {
        const std::scoped_lock lock{mutex_};
        return reason_;
    }

    void count_node() { count_nodes(1); }
    void count_nodes(std::size_t n) { nodes_.fetch_add(n, std::memory_order_relaxed); }
    void count_iterations(std::size_t n) { iterations_.fetch_add(n, std::memory_order_relaxed); }
    void count_conflicts(std::size_t n) { conflicts_.fetch_add(n, std::memory_order_relaxed); }
    /// Adds a change in bytes to the memory that the search holds.
    void charge(std::ptrdiff_t change) {
        if (parent_ != nullptr) parent_->charge(change);
        const auto held = memory_.fetch_add(change, std::memory_order_relaxed) + change;
        auto peak = peak_.load(std::memory_order_relaxed);
        while (held > peak && !peak_.compare_exchange_weak(peak, held, std::memory_order_relaxed)) {
        }
    }
    [[nodiscard]] bool limits_memory() const { return memory_limit_ < std::numeric_limits<std::size_t>::max(); }
    /// The number of bytes that the search may still allocate.
    [[nodiscard]] std::size_t memory_left() const {
        const auto left = countable() - std::min(countable(), memory());
        return parent_ != nullptr ? std::min(left, parent_->memory_left()) : left;
    }
    /// The bytes by which one of several growing relaxations may grow before the next check. Unlimited in deterministic
    /// mode, because a limit would depend on other threads.
    [[nodiscard]] std::size_t memory_left_for_one() const {
        if (!limits_memory() || !counts_matter_) return std::numeric_limits<std::size_t>::max();
        const auto share = memory_left() / relaxations_.load(std::memory_order_relaxed);
        return parent_ != nullptr ? std::min(share, parent_->memory_left_for_one()) : share;
    }
    /// Sets the number of relaxations solved at the same time, at least 1.
    void expect_relaxations(std::size_t count) { relaxations_.store(count, std::memory_order_relaxed); }
    [[nodiscard]] std::size_t nodes() const { return nodes_.load(std::memory_order_relaxed); }
    [[nodiscard]] std::size_t iterations() const { return iterations_.load(std::memory_order_relaxed); }
    [[nodiscard]] std::size_t conflicts() const { return conflicts_.load(std::memory_order_relaxed); }
    [[nodiscard]] std::size_t memory() const {
        return static_cast<std::size_t>(std::max<std::ptrdiff_t>(0, memory_.load(std::memory_order_relaxed)));
    }
    [[nodiscard]] std::size_t peak_memory() const {
        return static_cast<std::size_t>(peak_.load(std::memory_order_relaxed));
    }

private:
    /// Largest counted memory with which the process stays within the limit. Growing arrays briefly exist twice, and
    /// the allocator needs memory of its own.
    [[nodiscard]] std::size_t countable() const { return memory_limit_ - memory_limit_ / 5; }

    struct forward {
        std::stop_source* source;
        std::atomic<bool>* asked;
        void operator()() const {
            asked->store(true);
            source->request_stop();
        }
    };

    void note(limit why) {
        const std::scoped_lock lock{mutex_};
        if (!reason_) reason_ = why;
    }

    control* parent_;
    clock::time_point start_;
    clock::time_point deadline_;
    std::size_t node_limit_;
    std::size_t iteration_limit_ = std::numeric_limits<std::size_t>::max();
    std::size_t memory_limit_;
    bool counts_matter_;
    std::stop_source source_;
    std::atomic<bool> asked_{false};
    std::atomic<bool> finished_{false};
    std::atomic<std::size_t> nodes_{0};
    std::atomic<std::size_t> iterations_{0};
    std::atomic<std::size_t> conflicts_{0};
    std::atomic<std::size_t> relaxations_{1};
    std::atomic<std::ptrdiff_t> memory_{0};
    std::atomic<std::ptrdiff_t> peak_{0};
    mutable std::mutex mutex_;
    std::optional<limit> reason_;
    std::stop_callback<forward> user_stop_; // must be the last member, because its constructor may call the function at
                                            // once
};

} // namespace optpipe::milp::search
