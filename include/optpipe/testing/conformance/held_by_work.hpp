#pragma once

#include "optpipe/program/ir.hpp"
#include "optpipe/schedule/operation.hpp"
#include "optpipe/testing/conformance/context.hpp"

#include <atomic>
#include <cstddef>
#include <deque>
#include <span>
#include <string>
#include <thread>
#include <utility>

namespace optpipe::testing::detail {

/// A gate that holds a lane. Work on the lane waits until the gate opens or the run is given up.
class work_gate {
public:
    /// `host_waits` is true while the check itself waits. Waits of the check don't count towards the gate's time limit.
    /// Other time counts, because the host may be stuck in a call.
    work_gate(std::size_t patience, const std::atomic<bool>& host_waits)
        : patience_{2 * patience}, host_waits_{host_waits} {}

    void open() { open_.store(true); }
    /// The lane's work calls this function to wait for the gate.
    void pass() {
        entered_.store(true);
        for (std::size_t asked = 0; !open_.load();) {
            if (asked == patience_) return abandoned_.store(true);
            std::this_thread::sleep_for(a_moment);
            if (!host_waits_.load()) ++asked;
        }
    }
    [[nodiscard]] bool is_entered() const { return entered_.load(); }
    /// Whether nobody opened the gate, because the opening thread was stuck.
    [[nodiscard]] bool is_abandoned() const { return abandoned_.load(); }

private:
    std::size_t patience_;
    const std::atomic<bool>& host_waits_;
    std::atomic<bool> open_{false};
    std::atomic<bool> entered_{false};
    std::atomic<bool> abandoned_{false};
};
struct passes_gate {
    work_gate* gate;
    void operator()(auto&) const { gate->pass(); }
};

struct remembers_thread {
    std::atomic<std::thread::id>* by;
    void operator()(auto&) const { by->store(std::this_thread::get_id()); }
};

/// Opens a gate once `finish` has returned too early (a fault), or has waited long enough.
struct opens_gate_late {
    work_gate* gate;
    const std::atomic<bool>* enters;
    const std::atomic<bool>* is_back;
    std::size_t chances;
    void operator()(auto&) const {
        while (!enters->load() && !gate->is_abandoned())
            std::this_thread::sleep_for(a_moment);
        for (std::size_t i = 0; i < 4 * chances && !is_back->load(); ++i)
            std::this_thread::sleep_for(a_moment);
        gate->open();
    }
};

/// Checks that block lanes by work, for lanes that call work after all earlier commands. The blocking work ends only
/// when the check ends it. A command that doesn't wait for the blocking work is found.
template <class Context> class held_by_work {
    using lane_type = typename Context::lane_type;
    using marker_type = typename Context::marker_type;
    using enum operation_kind;

public:
    explicit held_by_work(Context& in) : in_{in} {}
    held_by_work(const held_by_work&) = delete;
    held_by_work& operator=(const held_by_work&) = delete;

    void run() {
        bool is_called_in_turn = false;
        in_.attempt("lane", [&] { is_called_in_turn = calls_work_in_turn(); });
        if (!is_called_in_turn) return;
        for (std::size_t round = 1; round <= in_.how().rounds; ++round) {
            in_.attempt("lane", [&] { check_order(round); });
            in_.attempt("finish", [&] { check_finish(); });
            in_.attempt("marker", [&] { check_nothing_recorded(); });
            in_.attempt("marker", [&] { check_wait(); });
            in_.attempt("marker", [&] { check_earlier_record(); });
            in_.attempt("marker", [&] { check_several(); });
            in_.attempt("copy", [&] { check_copies(round); });
        }
    }

private:
    static constexpr std::size_t stale = 250;
    /// The checks don't depend on this size.
    static constexpr std::size_t bytes = 1024;
    static std::span<std::byte> first(const auto& slab) { return slab.memory().first(bytes); }

    /// Whether a lane calls work on a different thread than the launching thread.
    [[nodiscard]] bool calls_work_in_turn() {
        auto on = in_.lane(lane_kind::compute);
        on.launch(Context::label(forward), remembers_thread{&called_by_});
        const bool at_once = called_by_.load() == std::this_thread::get_id();
        in_.on().finish();
        return !at_once;
    }

    void check_order(std::size_t round) {
        auto device = in_.on().memory().device(bytes);
        auto from = in_.on().memory().host(bytes);
        auto to = in_.on().memory().host(bytes);
        Context::fill(first(from), round);
        Context::fill(first(to), stale);
        const execution::copy_piece in{first(device), first(from)};
        const execution::copy_piece out{first(to), first(device)};
        auto& work = make_flag();
        auto opened = in_.lane(lane_kind::compute);
        auto& gate = hold(opened);
        auto on = std::move(opened);
        launch(on, work);
        in_.copy(on, execution::copy_direction::in, in);
        in_.copy(on, execution::copy_direction::out, out);
        await_held(gate);
        let_others_go_on();
        const bool is_early = work.load() || !Context::holds(first(to), stale);
        gate.open();
        finish();
        if (is_early) in_.report("lane", "doesn't do things in order: what is behind work comes before that is over");
        if (!work.load() || !Context::holds(first(to), round))
            in_.report("lane", "doesn't do things in order, or `finish` returns too early");
    }

    void check_finish() {
        auto& enters = make_flag();
        auto& is_back = make_flag();
        auto& last = make_flag();
        auto held = in_.lane(lane_kind::compute);
        auto free = in_.lane(lane_kind::copy);
        auto& gate = hold(held);
        launch(held, last);
        await_held(gate);
        free.launch(Context::label(forward), opens_gate_late{&gate, &enters, &is_back, in_.how().chances});
        enters.store(true);
        finish();
        const bool is_over = last.load();
        is_back.store(true);
        if (!is_over) in_.report("finish", "returns before what is in a lane is over");
        await(last, "lane", "never calls what was launched");
    }

    void check_nothing_recorded() {
        auto& work = make_flag();
        const auto never = in_.on().make_marker();
        auto on = in_.lane(lane_kind::copy_out);
        on.wait(never);
        launch(on, work);
        await(work, "marker", "a lane waits for a marker that was never recorded");
        finish();
    }

    void check_wait() {
        auto& comes_to_it = make_flag();
        auto& work = make_flag();
        auto marker = in_.on().make_marker();
        auto moved = in_.on().make_marker();
        auto held = in_.lane(lane_kind::compute);
        auto waiting = in_.lane(lane_kind::copy_out);
        auto& gate = hold(held);
        held.record(marker);
        moved = std::move(marker);
        launch(waiting, comes_to_it);
        waiting.wait(moved);
        launch(waiting, work);
        await_held(gate);
        await(comes_to_it, "marker", "what comes before a wait waits as well");
        const bool is_early = comes_while_held(work);
        gate.open();
        await(work, "marker", "a lane still waits when what it waits for is over");
        finish();
        if (is_early) in_.report("marker", "a lane doesn't wait for what another one has recorded");
    }

    /// Checks that a wait is for the last record before the wait. A later record doesn't matter, even if it exists when
    /// the lane reaches the wait.
    void check_earlier_record() {
        auto& first = make_flag();
        auto& second = make_flag();
        auto marker = in_.on().make_marker();
        auto held = in_.lane(lane_kind::compute);
        auto waiting = in_.lane(lane_kind::copy_out);
        held.record(marker);
        auto& late = hold(waiting);
        waiting.wait(marker);
        launch(waiting, first);
        auto& gate = hold(held);
        held.record(marker);
        waiting.wait(marker);
        launch(waiting, second);
        await_held(gate);
        await_held(late);
        late.open();
        await(first, "marker", "a lane waits for what was recorded after it was told to wait");
        const bool is_early = comes_while_held(second);
        gate.open();
        await(second, "marker", "a lane still waits when what it waits for is over");
        finish();
        if (is_early) in_.report("marker", "a lane doesn't wait for a marker that is recorded again");
    }

    /// Checks one lane that waits for two markers, then two lanes that wait for one marker.
    void check_several() {
        auto& one = make_flag();
        auto& other = make_flag();
        auto& again = make_flag();
        auto slow = in_.on().make_marker();
        auto quick = in_.on().make_marker();
        auto held = in_.lane(lane_kind::compute);
        auto free = in_.lane(lane_kind::copy_in);
        auto waiting = in_.lane(lane_kind::copy_out);
        auto& gate = hold(held);
        held.record(slow);
        free.record(quick);
        waiting.wait(slow);
        waiting.wait(quick);
        launch(waiting, one);
        free.wait(slow);
        launch(free, other);
        await_held(gate);
        const bool is_early = comes_while_held(one) || other.load();
        gate.open();
        for (auto* work : {&one, &other})
            await(*work, "marker", "of the lanes that wait for a marker not all go on");
        waiting.wait(slow);
        launch(waiting, again);
        await(again, "marker", "a lane still waits when what it waits for is over");
        finish();
        if (is_early) in_.report("marker", "a lane doesn't wait for all that it was told to wait for");
    }

    void check_copies(std::size_t round) {
        auto device = in_.on().memory().device(bytes);
        auto from = in_.on().memory().host(bytes);
        auto to = in_.on().memory().host(bytes);
        Context::fill(first(from), round);
        Context::fill(first(to), stale);
        const execution::copy_piece in{first(device), first(from)};
        const execution::copy_piece out{first(to), first(device)};
        auto arrived = in_.on().make_marker();
        auto held = in_.lane(lane_kind::copy_in);
        auto waiting = in_.lane(lane_kind::copy_out);
        auto& gate = hold(held);
        in_.copy(held, execution::copy_direction::in, in);
        held.record(arrived);
        waiting.wait(arrived);
        in_.copy(waiting, execution::copy_direction::out, out);
        await_held(gate);
        let_others_go_on();
        const bool is_early = !Context::holds(first(to), stale);
        gate.open();
        finish();
        if (is_early || !Context::holds(first(to), round))
            in_.report("copy", "one that is behind a wait comes before what its lane waits for");
    }

    [[nodiscard]] std::atomic<bool>& make_flag() { return flags_.emplace_back(false); }
    static void launch(lane_type& on, std::atomic<bool>& flag) {
        on.launch(Context::label(forward), raises_flag{&flag});
    }
    /// Blocks the lane from this point on. Returns the gate that releases the lane.
    work_gate& hold(lane_type& on) {
        auto& gate = gates_.emplace_back(in_.how().patience, in_.waits());
        on.launch(Context::label(backward), passes_gate{&gate});
        return gate;
    }
    [[noreturn]] void give_up(const std::string& place, const std::string& reason) {
        for (auto& g : gates_)
            g.open();
        in_.give_up(place, reason);
    }
    /// Checks that calls return while a lane is blocked. A call that waits for commands in the blocked lane returns
    /// only when the gate opens.
    void check_that_calls_return() {
        for (const auto& g : gates_)
            if (g.is_abandoned()) give_up("lane", "a call that puts something into a lane waits for what is in a lane");
    }
    void await(const std::atomic<bool>& flag, const std::string& place, const std::string& otherwise) {
        check_that_calls_return();
        if (!in_.await([&] { return flag.load(); })) give_up(place, otherwise);
    }
    void await_held(const work_gate& gate) {
        check_that_calls_return();
        if (!in_.await([&] { return gate.is_entered(); })) give_up("lane", "never calls what was launched");
    }
    /// Waits until all lanes that aren't blocked have had time to run.
    void let_others_go_on() {
        auto free = in_.lane(lane_kind::copy, in_.how().chances + 1);
        for (std::size_t i = 0; i < in_.how().chances; ++i) {
            auto& passed = make_flag();
            launch(free, passed);
            await(passed, "lane", "two lanes don't go on at the same time: where one is held, so is another");
            std::this_thread::sleep_for(a_moment);
        }
    }
    [[nodiscard]] bool comes_while_held(const std::atomic<bool>& work) {
        let_others_go_on();
        return work.load();
    }
    void finish() {
        check_that_calls_return();
        in_.on().finish();
    }

    Context& in_;
    /// Objects that the lanes' commands use.
    std::deque<work_gate> gates_;
    std::deque<std::atomic<bool>> flags_;
    std::atomic<std::thread::id> called_by_{};
};

} // namespace optpipe::testing::detail
