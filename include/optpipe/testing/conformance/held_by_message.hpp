#pragma once

#include "optpipe/program/ir.hpp"
#include "optpipe/schedule/operation.hpp"
#include "optpipe/testing/conformance/context.hpp"

#include <array>
#include <cstddef>
#include <span>
#include <string>
#include <type_traits>
#include <utility>

namespace optpipe::testing::detail {

/// Checks in which a message blocks a lane, for lanes of any kind. The examined rank waits for a message that its
/// neighbour sends late. The neighbour sends the late message after many others, once the examined rank waits. The
/// ranks are examined in order, each with the help of the next rank.
///
/// The checks also fit transports that run a direction's messages in the order of issue.
template <class Context> class held_by_message {
    using lane_type = typename Context::lane_type;
    using enum operation_kind;

public:
    explicit held_by_message(Context& in) : in_{in} {}

    void run() {
        for (const rank examined : index_range<rank>{in_.on().ranks()}) {
            take_part(
                examined, "marker", [&] { wait_for_message(); }, [&] { send_late(); });
            take_part(
                examined, "transport", [&] { overwrite_what_was_sent(); }, [&] { receive_late(); });
            take_part(
                examined, "transport", [&] { receive_in_other_order(); }, [&] { send_in_order(); });
        }
    }

private:
    static constexpr std::size_t stale = 250;
    static constexpr std::size_t ping_bytes = 8;

    template <class Examine, class Help>
    void take_part(rank examined, const std::string& place, const Examine& examine, const Help& help) {
        if (in_.on().self() == examined) in_.attempt(place, examine);
        if (in_.previous() == examined) in_.attempt(place, help);
    }

    /// The rank's buffers: `count` buffers on the device, `count` on the host, and a few bytes for messages without
    /// content.
    struct buffers {
        buffers(Context& in, std::size_t count)
            : in_{in}, device_{in.on().memory().device(count * in.how().bytes)},
              host_{in.on().memory().host(count * in.how().bytes)}, ping_{in.on().memory().device(ping_bytes)} {}
        [[nodiscard]] std::span<std::byte> device(std::size_t i) const { return at(device_, i); }
        [[nodiscard]] std::span<std::byte> host(std::size_t i) const { return at(host_, i); }
        [[nodiscard]] std::span<std::byte> ping() const { return ping_.memory().first(ping_bytes); }

    private:
        [[nodiscard]] std::span<std::byte> at(const auto& slab, std::size_t i) const {
            return slab.memory().subspan(i * in_.how().bytes, in_.how().bytes);
        }
        using memory_type =
            std::remove_reference_t<decltype(std::declval<typename Context::executor_type&>().memory())>;
        Context& in_;
        decltype(std::declval<memory_type&>().device(0)) device_;
        decltype(std::declval<memory_type&>().host(0)) host_;
        decltype(std::declval<memory_type&>().device(0)) ping_;
    };

    [[nodiscard]] std::size_t commands() const { return in_.how().chances + 8; }
    /// Sends pings, which are messages without content. Pings go in the direction of gradients, so they don't wait
    /// behind activations.
    void send_pings(lane_type& from, std::span<const std::byte> data) {
        for (std::size_t i = 0; i < in_.how().chances; ++i)
            in_.send(from, backward, in_.next(), i, data);
    }
    void receive_pings(lane_type& in, std::span<std::byte> data) {
        for (std::size_t i = 0; i < in_.how().chances; ++i)
            in_.receive(in, backward, in_.previous(), i, data);
    }

    /// Copies data that arrives by message, in the message's lane and in a lane that waits for a marker. The marker was
    /// also recorded before the message, but the wait must be for the later record.
    void wait_for_message() {
        const buffers own{in_, 3};
        const execution::copy_piece behind{own.host(1), own.device(0)};
        const execution::copy_piece elsewhere{own.host(2), own.device(0)};
        auto marker = in_.on().make_marker();
        auto held = in_.lane(lane_kind::receive_forward, commands());
        auto waiting = in_.lane(lane_kind::copy_out, commands());
        auto pings = in_.lane(lane_kind::send_backward, commands());
        for (std::size_t round = 1; round <= in_.how().rounds; ++round) {
            held.record(marker);
            waiting.wait(marker);
            in_.send(waiting, forward, in_.next(), 0, own.ping());
            in_.receive(held, forward, in_.next(), round, own.device(0));
            in_.copy(held, execution::copy_direction::out, behind);
            held.record(marker);
            waiting.wait(marker);
            in_.copy(waiting, execution::copy_direction::out, elsewhere);
            send_pings(pings, own.ping());
            in_.on().finish();
            if (!Context::holds(own.host(1), round))
                in_.report("transport", "what is behind an exchange in its lane comes before that is over, or `finish` "
                                        "returns too early");
            if (!Context::holds(own.host(2), round))
                in_.report("marker", "a lane doesn't wait for what another one has recorded");
        }
    }
    void send_late() {
        const buffers own{in_, 1};
        const execution::copy_piece in{own.device(0), own.host(0)};
        auto on = in_.lane(lane_kind::communication, 2 * commands());
        for (std::size_t round = 1; round <= in_.how().rounds; ++round) {
            Context::fill(own.host(0), round);
            in_.copy(on, execution::copy_direction::in, in);
            in_.receive(on, forward, in_.previous(), 0, own.ping());
            receive_pings(on, own.ping());
            in_.send(on, forward, in_.previous(), round, own.device(0));
            in_.on().finish();
        }
    }

    /// Checks that a send ends only when its data may be overwritten.
    void overwrite_what_was_sent() {
        const buffers own{in_, 2};
        const execution::copy_piece right{own.device(0), own.host(0)};
        const execution::copy_piece wrong{own.device(0), own.host(1)};
        auto on = in_.lane(lane_kind::send_forward, commands());
        auto pings = in_.lane(lane_kind::send_backward, commands());
        Context::fill(own.host(0), 1);
        Context::fill(own.host(1), stale);
        in_.copy(on, execution::copy_direction::in, right);
        in_.send(on, forward, in_.next(), 1, own.device(0));
        in_.copy(on, execution::copy_direction::in, wrong);
        send_pings(pings, own.ping());
        in_.on().finish();
    }
    void receive_late() {
        const buffers own{in_, 1};
        const execution::copy_piece out{own.host(0), own.device(0)};
        auto on = in_.lane(lane_kind::receive_forward, 2 * commands());
        receive_pings(on, own.ping());
        in_.receive(on, forward, in_.previous(), 1, own.device(0));
        in_.copy(on, execution::copy_direction::out, out);
        in_.on().finish();
        if (!Context::holds(own.host(0), 1))
            in_.report("transport", "what is behind a send in its lane comes before that is over");
    }

    /// Receives the gradient first, although it is sent long after the activation.
    void receive_in_other_order() {
        const buffers own{in_, 2};
        const std::array out{execution::copy_piece{own.host(0), own.device(0)},
                             execution::copy_piece{own.host(1), own.device(1)}};
        auto pings = in_.lane(lane_kind::send_backward, commands());
        auto on = in_.lane(lane_kind::communication, commands());
        send_pings(pings, own.ping());
        in_.receive(on, backward, in_.next(), 0, own.device(0));
        in_.receive(on, forward, in_.next(), 0, own.device(1));
        in_.on().copies().copy(on, execution::copy_direction::out, Context::label(offload), out);
        in_.on().finish();
        if (!Context::holds(own.host(0), 10) || !Context::holds(own.host(1), 11))
            in_.report("transport", "a message isn't the one whose turn it is in its direction");
    }
    void send_in_order() {
        const buffers own{in_, 2};
        const std::array in{execution::copy_piece{own.device(0), own.host(0)},
                            execution::copy_piece{own.device(1), own.host(1)}};
        auto activations = in_.lane(lane_kind::send_forward, commands());
        auto gradients = in_.lane(lane_kind::send_backward, 2 * commands());
        Context::fill(own.host(0), 10);
        Context::fill(own.host(1), 11);
        in_.on().copies().copy(activations, execution::copy_direction::in, Context::label(reload), in);
        in_.on().finish();
        in_.send(activations, forward, in_.previous(), 0, own.device(1));
        receive_pings(gradients, own.ping());
        in_.send(gradients, backward, in_.previous(), 0, own.device(0));
        in_.on().finish();
    }

    Context& in_;
};

} // namespace optpipe::testing::detail
