#pragma once

#include "optpipe/execution/cuda/lane.hpp"
#include "optpipe/program/ir.hpp"

#include <cstddef>
#include <deque>
#include <map>
#include <string>
#include <tuple>

namespace optpipe::cuda {

/// Carries messages between ranks of one process by copying between device memories. The ranks share one GPU, or have
/// GPUs with peer access.
class loopback final : public detail::carrier {
public:
    /// An exchange ends once all its messages have ended. The receiver's stream copies the data. The streams of sender
    /// and receiver wait for each other's events.
    bool carry(detail::lane_state& on, detail::command& what) override {
        if (!on.is_offered) {
            on.is_offered = true;
            offer(on, what);
        }
        return open_[&on].left == 0;
    }
    void forget(detail::lane_state& on) noexcept override {
        open_.erase(&on);
        for (auto& [way, waiting] : channels_)
            std::erase_if(waiting, [&](const end& e) { return e.on == &on; });
    }

private:
    struct end {
        detail::lane_state* on = nullptr;
        message_end message{};
    };
    struct exchange {
        std::size_t left = 0;
        /// The point where the lane reached the exchange. `copied` marks the end of the last copy into this lane.
        event arrived{};
        event copied{};
    };
    using channel = std::tuple<rank, rank, message_direction>;

    void offer(detail::lane_state& on, const detail::command& what) {
        auto& mine = open_[&on];
        mine.left = what.count;
        on.target.record(mine.arrived);
        for (std::size_t i = 0; i < what.count; ++i) {
            const auto& m = what.messages[i];
            const auto way = direction_of(m.label.op);
            auto& waiting = channels_[m.sends ? channel{on.place.self, m.label.peer, way}
                                              : channel{m.label.peer, on.place.self, way}];
            if (waiting.empty() || waiting.front().message.sends == m.sends) {
                waiting.push_back({&on, m});
                continue;
            }
            const auto other = waiting.front();
            waiting.pop_front();
            if (m.sends)
                meet({&on, m}, other);
            else
                meet(other, {&on, m});
        }
    }
    void meet(const end& sender, const end& receiver) {
        auto& from = open_[sender.on];
        auto& to = open_[receiver.on];
        --from.left;
        --to.left;
        const auto& sent = sender.message;
        const auto& received = receiver.message;
        if (!is_same_content(sent.label, received.label) || sent.bytes != received.bytes)
            throw error{cudaErrorInvalidValue, content_of(sent.label) + " of " + std::to_string(sent.bytes) +
                                                   " bytes came where " + content_of(received.label) + " of " +
                                                   std::to_string(received.bytes) + " was to come"};
        receiver.on->target.wait(from.arrived);
        if (sent.bytes > 0) receiver.on->target.copy(received.to, sent.from, sent.bytes, cudaMemcpyDeviceToDevice);
        receiver.on->target.record(to.copied);
        sender.on->target.wait(to.copied);
    }

    std::map<detail::lane_state*, exchange> open_;
    std::map<channel, std::deque<end>> channels_;
};

} // namespace optpipe::cuda
