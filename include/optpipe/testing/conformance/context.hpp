#pragma once

#include "optpipe/core/error.hpp"
#include "optpipe/execution/error.hpp"
#include "optpipe/execution/executor.hpp"
#include "optpipe/execution/transport.hpp"
#include "optpipe/program/ir.hpp"
#include "optpipe/schedule/operation.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <exception>
#include <initializer_list>
#include <span>
#include <string>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

namespace optpipe::testing {

struct conformance_options {
    /// Size of each copy and message in bytes. A large size reveals errors that only show during a copy.
    std::size_t bytes = std::size_t{4} << 20U;
    std::size_t rounds = 5;
    /// Number of commands on another lane while a lane is blocked. The default is large enough to reveal a missing
    /// wait.
    std::size_t chances = 50;
    /// Whether the last check causes an error in a lane, which makes the executor unusable.
    bool with_error = true;
    /// Whether rank 0 fails the last check by `cancel`, rather than by an exception. An error makes the executor
    /// unusable, so each run checks only one kind of error.
    bool by_cancel = false;
    /// Whether every rank reports the error of the rank where the failure started. Must be false if each rank detects
    /// on its own that another rank is gone. If false, each error must name the reporting rank and its pending
    /// operation.
    bool same_error = true;
    /// Whether work may block a lane, for lanes that call work after all earlier commands. If true, checks block up to
    /// two lanes of a rank at a time. Must be false for virtual time, or if two lanes of a rank can't be blocked at
    /// once. Has no effect on executors that call work immediately, such as executors with streams.
    bool work_may_block = true;
    /// Number of sleeps (of `detail::a_moment`) after which a waiting check counts as stuck. The default takes half a
    /// minute on an idle machine.
    std::size_t patience = 200'000;
};

namespace detail {

/// Sleep of a waiting thread between two polls.
inline constexpr std::chrono::microseconds a_moment{100};

/// Thrown to end the run when a check is stuck.
struct gave_up {};

/// State shared by the checks of one rank: the executor, and the violations found.
template <class Executor> class conformance_context {
public:
    using executor_type = Executor;
    using lane_type = execution::lane_of<Executor>;
    using marker_type = execution::marker_of<Executor>;

    conformance_context(Executor& on, const conformance_options& how)
        : on_{on}, how_{how}, next_{rank{(on.self().position() + 1) % on.ranks()}},
          previous_{rank{(on.self().position() + on.ranks() - 1) % on.ranks()}} {}

    [[nodiscard]] Executor& on() { return on_; }
    [[nodiscard]] const conformance_options& how() const { return how_; }
    [[nodiscard]] rank next() const { return next_; }
    [[nodiscard]] rank previous() const { return previous_; }
    [[nodiscard]] std::vector<violation>& found() { return found_; }
    /// Whether the executor is still usable.
    [[nodiscard]] bool is_alive() const { return alive_; }

    /// Reports a violation. A violation found in several rounds is reported once.
    void report(const std::string& place, std::string reason) {
        violation found{"rank " + std::to_string(on_.self().value()) + ", " + place, std::move(reason)};
        if (std::find(found_.begin(), found_.end(), found) == found_.end()) found_.push_back(std::move(found));
    }
    /// Runs a check if the executor is still usable.
    template <class Check> void attempt(const std::string& place, const Check& check) {
        if (!alive_) return;
        try {
            check();
        } catch (const gave_up&) {
            alive_ = false;
            finish_after_failure();
        } catch (const execution_error& e) {
            alive_ = false;
            report(place, std::string{"throws: "} + e.what());
        } catch (const std::exception& e) {
            report(place, std::string{"throws: "} + e.what());
        }
    }
    [[noreturn]] void give_up(const std::string& place, const std::string& reason) {
        report(place, reason);
        on_.cancel("the conformance checks", reason);
        throw gave_up{};
    }
    /// Waits for the condition. Returns false if the condition isn't true within the time limit (`patience`).
    template <class Condition> [[nodiscard]] bool await(const Condition& condition) {
        waits_.store(true);
        for (std::size_t asked = 0; !condition() && asked < at_once; ++asked)
            std::this_thread::yield();
        for (std::size_t asked = 0; !condition() && asked < how_.patience; ++asked)
            std::this_thread::sleep_for(a_moment);
        waits_.store(false);
        return condition();
    }
    /// Whether the check itself waits in `await`.
    [[nodiscard]] const std::atomic<bool>& waits() const { return waits_; }

    [[nodiscard]] lane_type lane(lane_kind kind, std::size_t commands = 64) { return on_.open_lane(kind, commands); }
    [[nodiscard]] std::span<std::byte> first(const auto& slab) const { return slab.memory().first(how_.bytes); }

    [[nodiscard]] static task_label label(operation_kind kind) {
        return {task_label::task_kind::operation, {stage{0}, kind, microbatch{0}}, {}};
    }
    [[nodiscard]] static task_label message(task_label::task_kind side, operation_kind made_by, rank peer,
                                            std::size_t number) {
        return {side, {stage{0}, made_by, microbatch{number}}, peer};
    }
    void send(lane_type& from, operation_kind made_by, rank to, std::size_t number, std::span<const std::byte> data) {
        exchange(from, {execution::send_of(message(task_label::task_kind::send, made_by, to, number), data)});
    }
    void receive(lane_type& in, operation_kind made_by, rank from, std::size_t number, std::span<std::byte> data) {
        exchange(in, {execution::receive_of(message(task_label::task_kind::receive, made_by, from, number), data)});
    }
    void exchange(lane_type& in, std::initializer_list<execution::message_end> messages) {
        on_.transport().exchange(in, {messages.begin(), messages.size()});
    }
    /// Appends copies to the lane `in`. The pieces must exist until the executor has finished.
    void copy(lane_type& in, execution::copy_direction way, const execution::copy_piece& piece) {
        const bool leaves = way == execution::copy_direction::out;
        on_.copies().copy(in, way, label(leaves ? operation_kind::offload : operation_kind::reload), {&piece, 1});
    }

    static void fill(std::span<std::byte> data, std::size_t value) {
        for (std::size_t i = 0; i < data.size(); ++i)
            data[i] = static_cast<std::byte>((value * 31 + i / 512 + i) & 0xffU);
    }
    static bool holds(std::span<const std::byte> data, std::size_t value) {
        for (std::size_t i = 0; i < data.size(); ++i)
            if (data[i] != static_cast<std::byte>((value * 31 + i / 512 + i) & 0xffU)) return false;
        return true;
    }

private:
    /// Number of polls before the first sleep. Most conditions become true before the first sleep.
    static constexpr std::size_t at_once = 100;

    void finish_after_failure() {
        try {
            on_.finish();
        } catch (const std::exception&) { // the failure was intended
        }
    }

    Executor& on_;
    conformance_options how_;
    rank next_;
    rank previous_;
    std::vector<violation> found_;
    std::atomic<bool> waits_{false};
    bool alive_ = true;
};

/// Work that sets a flag when it is called.
struct raises_flag {
    std::atomic<bool>* flag;
    void operator()(auto&) const { flag->store(true); }
};

} // namespace detail
} // namespace optpipe::testing
