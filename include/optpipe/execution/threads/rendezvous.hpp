#pragma once

#include "optpipe/core/compiled.hpp"
#include "optpipe/core/index.hpp"
#include "optpipe/execution/threads/failure.hpp"
#include "optpipe/execution/threads/options.hpp"
#include "optpipe/execution/transport.hpp"
#include "optpipe/program/ir.hpp"

#include <condition_variable>
#include <cstddef>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

namespace optpipe::threads {

/// Counts down the messages of a lane's exchange that haven't arrived yet.
class exchange_gate final : public wakeable {
public:
    explicit exchange_gate(failure& f) : failure_{f}, registration_{f, *this} {}

    void open(std::size_t messages);
    void arrive(nanoseconds at);
    /// Waits until all messages have arrived. Returns false after a failure, or after `patience`.
    bool await(nanoseconds patience);
    /// The time at which the last message arrived. Valid after `await`.
    [[nodiscard]] nanoseconds over() const { return over_; }
    void wake() noexcept override;

private:
    failure& failure_;
    std::mutex mutex_;
    std::condition_variable changed_;
    std::size_t left_ = 0;
    nanoseconds over_{};
    wake_registration registration_;
};

/// One end of a message, offered until the other end is ready.
struct message_offer {
    bool sends = false;
    task_label label{};
    std::byte* to = nullptr;
    const std::byte* from = nullptr;
    std::size_t bytes = 0;
    /// The time when this end of the message was ready.
    nanoseconds ready{};
    exchange_gate* gate = nullptr;
};

/// Matches the two ends of each message. Messages between two ranks match in order within each direction.
class message_carrier {
public:
    /// Offers one end of a message. Called by the lane to which the offer's gate belongs. The carrier calls the gate
    /// when the message has arrived. A wrong message is reported as a failure.
    virtual void offer(rank self, const message_offer& mine) = 0;
    /// Withdraws an offer after a failure. After the call, the data of `mine` isn't used any longer.
    virtual void withdraw(rank self, const message_offer& mine) = 0;

protected:
    ~message_carrier() = default;
};

/// Matches the message ends of one sender, receiver and direction, in order.
class message_channel {
public:
    message_channel() { offers_.reserve(2 * execution::most_messages); }

    /// An error in a message, reported at the receiver. The reason is empty if there is no error.
    struct mistake {
        task_label where{};
        std::string reason{};
    };

    /// Carries the message if the other end is ready.
    mistake meet(const message_offer& mine, rank from, const options& how);
    /// Withdraws all offers of the lane to which the gate belongs. After the call, the data of the withdrawn offers
    /// isn't used any longer.
    void withdraw(const exchange_gate& whose);

private:
    std::mutex mutex_;
    std::vector<message_offer> offers_;
};

/// All message channels between the ranks of one process.
class message_board final : public message_carrier {
public:
    message_board(std::size_t ranks, const options& how, failure& failed);
    void offer(rank self, const message_offer& mine) override;
    void withdraw(rank self, const message_offer& mine) override;

private:
    static std::pair<rank, rank> ends(rank self, const message_offer& m);
    message_channel& channel(rank from, rank to, const message_offer& m);

    std::size_t ranks_;
    const options& how_;
    failure& failed_;
    std::vector<std::unique_ptr<message_channel>> channels_;
};

} // namespace optpipe::threads

#if OPTPIPE_DEFINES(execution)

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <span>

namespace optpipe::threads {

OPTPIPE_INLINE void exchange_gate::open(std::size_t messages) {
    const std::scoped_lock lock{mutex_};
    left_ = messages;
    over_ = {};
}

OPTPIPE_INLINE void exchange_gate::arrive(nanoseconds at) {
    const std::scoped_lock lock{mutex_};
    over_ = std::max(over_, at);
    if (--left_ == 0) changed_.notify_one();
}

OPTPIPE_INLINE bool exchange_gate::await(nanoseconds patience) {
    std::unique_lock lock{mutex_};
    return changed_.wait_for(lock, patience, [&] { return left_ == 0 || failure_.happened().load(); }) && left_ == 0;
}

OPTPIPE_INLINE void exchange_gate::wake() noexcept {
    const std::scoped_lock lock{mutex_};
    changed_.notify_one();
}

OPTPIPE_INLINE message_channel::mistake message_channel::meet(const message_offer& mine, rank from,
                                                              const options& how) {
    const std::scoped_lock lock{mutex_};
    const bool sends = mine.sends;
    if (offers_.empty() || offers_.front().sends == sends) {
        offers_.push_back(mine);
        return {};
    }
    const auto other = offers_.front();
    const auto& sent = sends ? mine : other;
    const auto& received = sends ? other : mine;
    if (how.faults.lost_message && is_same_work(*how.faults.lost_message, sent.label.op)) {
        if (!sends) offers_.front() = mine; // the lost send is dropped, and the receive goes on waiting
        if (!sends) other.gate->arrive(other.ready);
        if (sends) mine.gate->arrive(mine.ready);
        return {};
    }
    if (!is_same_content(sent.label, received.label))
        return {received.label, content_of(sent.label) + " came where " + content_of(received.label) + " was to come"};
    if (sent.bytes != received.bytes)
        return {received.label,
                std::to_string(sent.bytes) + " bytes came where " + std::to_string(received.bytes) + " were to come"};
    // Called before any state changes, because `how.messages` may throw.
    const auto took = how.messages ? how.messages(from, sent.label, sent.bytes) : nanoseconds{};
    offers_.erase(offers_.begin());
    if (sent.bytes > 0) std::memcpy(received.to, sent.from, sent.bytes);
    const auto over = std::max(sent.ready, received.ready) + took;
    sent.gate->arrive(over);
    received.gate->arrive(over);
    return {};
}

OPTPIPE_INLINE void message_channel::withdraw(const exchange_gate& whose) {
    const std::scoped_lock lock{mutex_};
    offers_.erase(
        std::remove_if(offers_.begin(), offers_.end(), [&](const message_offer& o) { return o.gate == &whose; }),
        offers_.end());
}

OPTPIPE_INLINE message_board::message_board(std::size_t ranks, const options& how, failure& failed)
    : ranks_{ranks}, how_{how}, failed_{failed}, channels_(2 * ranks * ranks) {
    for (auto& c : channels_)
        c = std::make_unique<message_channel>();
}

OPTPIPE_INLINE void message_board::offer(rank self, const message_offer& mine) {
    const auto [from, to] = ends(self, mine);
    const auto wrong = channel(from, to, mine).meet(mine, from, how_);
    if (!wrong.reason.empty()) failed_.report(to, to_string(wrong.where), wrong.reason);
}

OPTPIPE_INLINE void message_board::withdraw(rank self, const message_offer& mine) {
    const auto [from, to] = ends(self, mine);
    channel(from, to, mine).withdraw(*mine.gate);
}

OPTPIPE_INLINE std::pair<rank, rank> message_board::ends(rank self, const message_offer& m) {
    return m.sends ? std::pair{self, m.label.peer} : std::pair{m.label.peer, self};
}

OPTPIPE_INLINE message_channel& message_board::channel(rank from, rank to, const message_offer& m) {
    const bool forward = direction_of(m.label.op) == message_direction::forward;
    return *channels_[(from.position() * ranks_ + to.position()) * 2 + (forward ? 0 : 1)];
}

} // namespace optpipe::threads
#endif
