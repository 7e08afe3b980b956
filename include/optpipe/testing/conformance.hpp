#pragma once

#include "optpipe/core/error.hpp"
#include "optpipe/execution/error.hpp"
#include "optpipe/execution/executor.hpp"
#include "optpipe/execution/transport.hpp"
#include "optpipe/program/ir.hpp"
#include "optpipe/schedule/operation.hpp"
#include "optpipe/testing/conformance/context.hpp"
#include "optpipe/testing/conformance/held_by_message.hpp"
#include "optpipe/testing/conformance/held_by_work.hpp"

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace optpipe::testing {
namespace detail {

/// The checks on one rank. The checks access device memory only by copies.
template <class Executor> class executor_checks {
    using context = conformance_context<Executor>;
    using lane_type = typename context::lane_type;

public:
    executor_checks(Executor& on, const conformance_options& how) : in_{on, how}, on_{on}, how_{how} {}

    std::vector<violation> run() {
        in_.attempt("memory", [&] { check_memory(); });
        in_.attempt("lane", [&] { check_lane(); });
        if (how_.work_may_block) held_by_work<context>{in_}.run();
        in_.attempt("marker", [&] { check_markers(); });
        in_.attempt("copy", [&] { check_pieces(); });
        if (on_.ranks() > 1) {
            in_.attempt("transport", [&] { check_order_of_messages(); });
            in_.attempt("transport", [&] { check_both_ways(); });
            held_by_message<context>{in_}.run();
        }
        if (how_.with_error && in_.is_alive()) check_error();
        return std::move(in_.found());
    }

private:
    static constexpr auto copy_label = context::label;
    static constexpr auto message = context::message;
    static void fill(std::span<std::byte> data, std::size_t value) { context::fill(data, value); }
    static bool holds(std::span<const std::byte> data, std::size_t value) { return context::holds(data, value); }
    void report(const std::string& place, std::string reason) { in_.report(place, std::move(reason)); }
    lane_type lane(lane_kind kind) { return in_.lane(kind); }
    std::span<std::byte> first(const auto& slab) const { return in_.first(slab); }
    [[nodiscard]] rank next() const { return in_.next(); }
    [[nodiscard]] rank previous() const { return in_.previous(); }

    void check_memory() {
        auto a = on_.memory().device(1000);
        auto b = on_.memory().host(1000);
        auto none = on_.memory().device(0);
        static_cast<void>(none);
        if (a.memory().size() < 1000 || b.memory().size() < 1000) report("memory", "a slab is smaller than asked for");
        if (a.memory().data() == b.memory().data()) report("memory", "two slabs are one");
        for (const auto* begin : {a.memory().data(), b.memory().data()})
            if (reinterpret_cast<std::uintptr_t>(begin) % alignof(std::max_align_t) != 0)
                report("memory", "a slab begins where not everything can be stored");
        const auto* const where = b.memory().data();
        auto moved = std::move(b);
        if (moved.memory().data() != where) report("memory", "a slab that is moved loses its memory");
        fill(moved.memory().first(1000), 1);
        if (!holds(moved.memory().first(1000), 1)) report("memory", "a host slab doesn't hold what is written there");
    }

    /// Copies data to the device and back on one lane. Checks that `finish` waits for all commands, and that each piece
    /// of work is called once.
    void check_lane() {
        auto device = on_.memory().device(how_.bytes);
        auto from = on_.memory().host(how_.bytes);
        auto to = on_.memory().host(how_.bytes);
        const execution::copy_piece in{first(device), first(from)};
        const execution::copy_piece out{first(to), first(device)};
        std::atomic<int> calls{0};
        auto on = lane(lane_kind::copy);
        for (std::size_t round = 1; round <= how_.rounds; ++round) {
            fill(first(from), round);
            on_.copies().copy(on, execution::copy_direction::in, copy_label(operation_kind::reload), {&in, 1});
            on.launch(copy_label(operation_kind::forward), counting{&calls});
            on_.copies().copy(on, execution::copy_direction::out, copy_label(operation_kind::offload), {&out, 1});
            on_.finish();
            if (!holds(first(to), round)) report("lane", "doesn't do things in order, or `finish` returns too early");
        }
        if (calls.load() != static_cast<int>(how_.rounds))
            report("lane", "calls work another number of times than once");
    }

    /// Copies data to the device on one lane, and back on a second lane that waits. Several rounds record the same
    /// markers again.
    void check_markers() {
        auto device = on_.memory().device(how_.bytes);
        auto from = on_.memory().host(how_.bytes);
        auto to = on_.memory().host(2 * how_.bytes);
        auto wrong = on_.memory().host(how_.bytes);
        fill(first(wrong), 250);
        // The last piece has the right data. The earlier pieces only prolong the copy.
        std::vector<execution::copy_piece> in(8, execution::copy_piece{first(device), first(wrong)});
        in.push_back({first(device), first(from)});
        const std::array out{execution::copy_piece{first(to), first(device)},
                             execution::copy_piece{to.memory().subspan(how_.bytes, how_.bytes), first(device)}};
        auto arrived = on_.make_marker();
        auto left = on_.make_marker();
        auto inward = lane(lane_kind::copy_in);
        auto outward = lane(lane_kind::copy_out);
        // `left` isn't recorded yet, so this wait does nothing.
        inward.wait(left);
        for (std::size_t round = 1; round <= how_.rounds; ++round) {
            fill(first(from), round);
            // The copies alternate: to the device, back, to the device, back.
            for (std::size_t i = 0; i < 2; ++i) {
                inward.wait(left);
                on_.copies().copy(inward, execution::copy_direction::in, copy_label(operation_kind::reload), in);
                inward.record(arrived);
                outward.wait(arrived);
                on_.copies().copy(outward, execution::copy_direction::out, copy_label(operation_kind::offload),
                                  {&out[i], 1});
                outward.record(left);
            }
            on_.finish();
            for (const auto& piece : out)
                if (!holds(piece.to, round)) report("marker", "a lane doesn't wait for what another one has recorded");
        }
    }

    void check_pieces() {
        auto device = on_.memory().device(300);
        auto host = on_.memory().host(600);
        const auto from = host.memory().first(300);
        const auto to = host.memory().subspan(300, 300);
        fill(from, 7);
        fill(to, 8);
        const auto here = device.memory();
        const std::array in{execution::copy_piece{here.subspan(100, 200), from.first(200)},
                            execution::copy_piece{here.first(0), from.first(0)},
                            execution::copy_piece{here.first(100), from.subspan(200, 100)}};
        const std::array out{execution::copy_piece{to.first(200), here.subspan(100, 200)},
                             execution::copy_piece{to.subspan(200, 100), here.first(100)}};
        auto on = lane(lane_kind::copy);
        on_.copies().copy(on, execution::copy_direction::in, copy_label(operation_kind::reload), in);
        on_.copies().copy(on, execution::copy_direction::out, copy_label(operation_kind::offload), out);
        on_.finish();
        if (!holds(to, 7)) report("copy", "pieces don't go where they belong");
    }

    /// Sends around a ring in both directions at once. Checks that messages keep their order within a direction, and
    /// aren't mixed between directions.
    void check_order_of_messages() {
        constexpr std::size_t messages = 3;
        constexpr std::array kinds{operation_kind::forward, operation_kind::backward};
        const auto bytes = how_.bytes;
        auto host = on_.memory().host(2 * messages * bytes);
        auto device = on_.memory().device(4 * messages * bytes);
        const auto place = [&](std::size_t which, std::size_t k, bool received) {
            return device.memory().subspan(((which * messages + k) * 2 + (received ? 1 : 0)) * bytes, bytes);
        };
        const auto value = [](rank r, std::size_t which, std::size_t k) { return 100 * r.position() + 10 * which + k; };
        std::vector<execution::copy_piece> in;
        for (std::size_t which = 0; which < 2; ++which)
            for (std::size_t k = 0; k < messages; ++k) {
                const auto here = host.memory().subspan((which * messages + k) * bytes, bytes);
                fill(here, value(on_.self(), which, k));
                in.push_back({place(which, k, false), here});
            }
        const execution::copy_pieces pieces{in};
        auto copies = lane(lane_kind::copy);
        on_.copies().copy(copies, execution::copy_direction::in, copy_label(operation_kind::reload),
                          pieces.first(messages));
        on_.finish();
        auto forward_sends = lane(lane_kind::send_forward);
        auto backward_sends = lane(lane_kind::send_backward);
        auto receives = lane(lane_kind::receive_forward);
        for (std::size_t k = 0; k < messages; ++k) {
            // The backward message is issued first, but sent last, after a copy in its lane.
            on_.copies().copy(backward_sends, execution::copy_direction::in, copy_label(operation_kind::reload),
                              pieces.subspan(messages + k, 1));
            for (const auto which : {std::size_t{1}, std::size_t{0}}) {
                in_.send(which == 0 ? forward_sends : backward_sends, kinds[which], next(), k, place(which, k, false));
                const auto other = k % 2 == 0 ? which : 1 - which;
                in_.receive(receives, kinds[other], previous(), k, place(other, k, true));
            }
        }
        on_.finish();
        for (std::size_t which = 0; which < 2; ++which)
            for (std::size_t k = 0; k < messages; ++k) {
                const execution::copy_piece out{first(host), place(which, k, true)};
                on_.copies().copy(copies, execution::copy_direction::out, copy_label(operation_kind::offload),
                                  {&out, 1});
                on_.finish();
                if (!holds(first(host), value(previous(), which, k)))
                    report("transport", "a message isn't the one whose turn it is in its direction");
            }
    }

    /// Every rank exchanges messages with both neighbours at once. The exchange lists a receive first, so running its
    /// messages one by one gets stuck. An empty exchange follows on the same lane, and must not overtake the first
    /// exchange.
    void check_both_ways() {
        using execution::receive_of;
        using execution::send_of;
        using task_kind = task_label::task_kind;
        constexpr auto forward = operation_kind::forward;
        constexpr auto backward = operation_kind::backward;
        auto host = on_.memory().host(4 * how_.bytes);
        const auto part = [&](std::size_t i) { return host.memory().subspan(i * how_.bytes, how_.bytes); };
        auto device = on_.memory().device(4 * how_.bytes);
        const auto there = [&](std::size_t i) { return device.memory().subspan(i * how_.bytes, how_.bytes); };
        const std::array in{execution::copy_piece{there(0), part(0)}, execution::copy_piece{there(1), part(1)}};
        const std::array out{execution::copy_piece{part(2), there(2)}, execution::copy_piece{part(3), there(3)}};
        auto on = lane(lane_kind::communication);
        for (std::size_t round = 1; round <= how_.rounds; ++round) {
            fill(part(0), round + 10 * on_.self().position());
            fill(part(1), round + 10 * on_.self().position() + 5);
            fill(part(2), 200);
            fill(part(3), 201);
            on_.copies().copy(on, execution::copy_direction::in, copy_label(operation_kind::reload), in);
            in_.exchange(on, {receive_of(message(task_kind::receive, backward, next(), round), there(3)),
                              send_of(message(task_kind::send, backward, previous(), round), there(1)),
                              receive_of(message(task_kind::receive, forward, previous(), round), there(2)),
                              send_of(message(task_kind::send, forward, next(), round), there(0))});
            in_.exchange(on, {send_of(message(task_kind::send, forward, next(), 0), there(0).first(0)),
                              receive_of(message(task_kind::receive, forward, previous(), 0), there(2).first(0))});
            on_.copies().copy(on, execution::copy_direction::out, copy_label(operation_kind::offload), out);
            on_.finish();
            if (!holds(part(2), round + 10 * previous().position()) ||
                !holds(part(3), round + 10 * next().position() + 5))
                report("transport", "what is in one exchange doesn't arrive before what comes next in the lane");
        }
    }

    /// Work of rank 0 throws, or rank 0 cancels. If the work throws, no later command in its lane may run. On every
    /// rank, `finish` must report rank 0's work, or the message that the rank waits for.
    void check_error() {
        const task_label throws{task_label::task_kind::operation, backward(stage{3}, microbatch{5}), {}};
        const auto waits = message(task_label::task_kind::receive, operation_kind::forward, rank{0}, 9);
        std::atomic<bool> goes_on{false};
        auto device = on_.memory().device(how_.bytes);
        auto on = lane(lane_kind::compute);
        try {
            await_others(on, device.memory());
            if (on_.self() == rank{0} && how_.by_cancel)
                on_.cancel(to_string(throws), "on purpose");
            else if (on_.self() == rank{0})
                launch_throwing(on, throws, goes_on);
            else // this rank receives a message that isn't sent
                in_.exchange(on, {execution::receive_of(waits, first(device))});
            on_.finish();
            report("error", how_.by_cancel ? "`finish` says nothing of what a rank cancelled"
                                           : "`finish` says nothing of an exception in work");
        } catch (const execution_error& e) {
            const bool own = on_.self() != rank{0} && !how_.same_error;
            if (own)
                check_names(e, on_.self(), to_string(waits), "");
            else
                check_names(e, rank{0}, to_string(throws), "on purpose");
        } catch (const std::exception& e) {
            report("error", std::string{"is no execution_error: "} + e.what());
        }
        if (goes_on.load()) report("error", "what is behind work that failed is done all the same");
    }
    void launch_throwing(lane_type& on, const task_label& label, std::atomic<bool>& goes_on) {
        try {
            on.launch(label, throwing{});
            on.launch(copy_label(operation_kind::forward), raises_flag{&goes_on});
        } catch (const std::exception& e) {
            on_.cancel(to_string(label), e.what());
        }
    }
    void check_names(const execution_error& e, rank where, const std::string& operation, const std::string& reason) {
        const std::string what = e.what();
        if (e.rank() != where || what.find(operation) == std::string::npos || what.find(reason) == std::string::npos)
            report("error", "names another rank, operation or reason: " + what);
    }

    /// Rank 0 continues once every rank has left the earlier checks.
    void await_others(lane_type& on, std::span<std::byte> room) {
        if (on_.self() != rank{0}) return in_.send(on, operation_kind::forward, rank{0}, 8, room.first(1));
        for (std::size_t r = 1; r < on_.ranks(); ++r)
            in_.receive(on, operation_kind::forward, rank{r}, 8, room.first(1));
        on_.finish();
    }

    struct counting {
        std::atomic<int>* calls;
        void operator()(auto&) const { calls->fetch_add(1); }
    };
    struct throwing {
        void operator()(auto&) const { throw error{"on purpose"}; }
    };

    context in_;
    Executor& on_;
    conformance_options how_;
};

} // namespace detail

/// Violations of the concepts by an executor, one sentence for each. The list is empty if the executor violates
/// nothing.
///
/// All ranks must call `check_executor` at the same time, each from its own thread or process. The checks block lanes
/// by work and messages, so commands that run too early are found. Only errors that show while a copy runs may be
/// missed. If a check gets stuck, the run ends, and the violation names the check.
template <class Executor>
[[nodiscard]] std::vector<violation> check_executor(Executor& on, const conformance_options& how = {}) {
    static_assert(execution::check_executor<Executor>());
    return detail::executor_checks<Executor>{on, how}.run();
}

} // namespace optpipe::testing
