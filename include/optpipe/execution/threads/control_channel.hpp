#pragma once

#include "optpipe/core/compiled.hpp"
#include "optpipe/core/index.hpp"
#include "optpipe/execution/control_channel.hpp"
#include "optpipe/execution/control_star.hpp"
#include "optpipe/execution/error.hpp"
#include "optpipe/execution/threads/failure.hpp"

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace optpipe::threads {

class control_channel;

/// Delivers letters between control channels. Letters keep their order between any two ranks.
class control_carrier {
public:
    /// Delivers all letters in the outbox of `from`. The caller holds the channel's lock.
    virtual void carry(control_channel& from) = 0;
    /// The error that all ranks throw after a failure. The call may wait until the error is known.
    virtual execution_error verdict() = 0;

protected:
    ~control_carrier() = default;
};

/// One rank's end of a control channel, for any carrier of letters. `mutex` guards all state of the channel. Several
/// channels may share a mutex.
class control_channel final : private wakeable {
public:
    control_channel(rank self, std::size_t ranks, std::chrono::nanoseconds patience, failure& failed, std::mutex& mutex,
                    control_carrier& by);
    control_channel(const control_channel&) = delete;
    control_channel& operator=(const control_channel&) = delete;

    [[nodiscard]] rank self() const { return star_.self(); }
    [[nodiscard]] std::size_t ranks() const { return star_.ranks(); }

    void publish(std::string_view text);
    [[nodiscard]] std::optional<std::string> next_published();
    void report(std::string_view text);
    [[nodiscard]] std::optional<execution::rank_text> next_report();
    void begin_minimum(std::uint64_t value);
    [[nodiscard]] std::uint64_t minimum();
    void cancel(std::string_view what_it_did, std::string_view reason);

    void send(rank to, std::string_view text);
    [[nodiscard]] std::string receive(rank from);

    // Called by the carrier, which holds the lock.

    [[nodiscard]] std::vector<execution::control_star::addressed> take_outbox() { return star_.take_outbox(); }
    [[nodiscard]] bool has_outgoing() const { return star_.has_outgoing(); }
    void take(rank from, execution::control_letter what);
    /// Whether this rank waits for a text or for a minimum.
    [[nodiscard]] bool is_waited_for() const { return star_.is_under_way() || is_receiving_; }

private:
    /// Waits for `has_come()`, a failure or the time limit. Returns `has_come()`.
    template <class Come> bool await(std::unique_lock<std::mutex>& lock, const Come& has_come) {
        changed_.wait_for(lock, own_patience(), [&] { return has_come() || failed_.happened().load(); });
        return has_come();
    }
    /// Reports a failure and throws. Only the first reported failure counts.
    [[noreturn]] void fail(const std::string& waited_for, const std::string& missing);
    /// The time limit of this rank. Rank 0 has the shortest limit, because only rank 0 can name the missing ranks.
    [[nodiscard]] std::chrono::nanoseconds own_patience() const;
    template <class Act> void put(const Act& act) {
        if (failed_.happened().load()) throw by_.verdict();
        const std::scoped_lock lock{mutex_};
        act();
        by_.carry(*this);
    }
    template <class Act> auto ask(const Act& act) -> decltype(act()) {
        if (failed_.happened().load()) throw by_.verdict();
        const std::scoped_lock lock{mutex_};
        return act();
    }
    void wake() noexcept override;

    execution::control_star star_;
    std::chrono::nanoseconds patience_;
    failure& failed_;
    std::mutex& mutex_;
    control_carrier& by_;
    bool is_receiving_ = false;
    std::condition_variable changed_;
    wake_registration registration_;
};

static_assert(execution::check_control_channel<control_channel>() && execution::check_peer_channel<control_channel>());

/// The control channels of ranks that are threads of one process. Usable with any executor.
class control_board final : private control_carrier {
public:
    /// `failed` receives the failure of a rank that cancels. A failure in `failed` ends every wait.
    control_board(std::size_t ranks, std::chrono::nanoseconds patience, failure& failed);
    control_board(const control_board&) = delete;
    control_board& operator=(const control_board&) = delete;

    [[nodiscard]] control_channel& operator[](rank r) { return *channels_[r.position()]; }

private:
    void carry(control_channel& from) override;
    execution_error verdict() override { return failed_.what(); }

    failure& failed_;
    std::mutex mutex_;
    std::vector<std::unique_ptr<control_channel>> channels_;
};

} // namespace optpipe::threads

#if OPTPIPE_DEFINES(execution)
#include "optpipe/core/contract.hpp"

namespace optpipe::threads {

OPTPIPE_INLINE control_channel::control_channel(rank self, std::size_t ranks, std::chrono::nanoseconds patience,
                                                failure& failed, std::mutex& mutex, control_carrier& by)
    : star_{self, ranks}, patience_{patience}, failed_{failed}, mutex_{mutex}, by_{by}, registration_{failed, *this} {}

OPTPIPE_INLINE void control_channel::publish(std::string_view text) {
    put([&] { star_.publish(text); });
}

OPTPIPE_INLINE std::optional<std::string> control_channel::next_published() {
    return ask([&] { return star_.next_published(); });
}

OPTPIPE_INLINE void control_channel::report(std::string_view text) {
    put([&] { star_.report(text); });
}

OPTPIPE_INLINE std::optional<execution::rank_text> control_channel::next_report() {
    return ask([&] { return star_.next_report(); });
}

OPTPIPE_INLINE void control_channel::begin_minimum(std::uint64_t value) {
    put([&] { star_.begin_minimum(value); });
}

OPTPIPE_INLINE std::uint64_t control_channel::minimum() {
    std::string missing;
    {
        std::unique_lock lock{mutex_};
        OPTPIPE_EXPECT(star_.is_under_way(), "control channel: no minimum has been begun");
        if (await(lock, [&] { return star_.has_minimum(); })) return star_.read_minimum();
        missing = star_.missing();
    }
    fail("a minimum of all ranks", missing + " hasn't come for it");
}

OPTPIPE_INLINE void control_channel::send(rank to, std::string_view text) {
    put([&] { star_.send_to(to, text); });
}

OPTPIPE_INLINE std::string control_channel::receive(rank from) {
    const auto has_come = [&] { return star_.has_text_of(from); };
    {
        std::unique_lock lock{mutex_};
        is_receiving_ = true;
        const bool came = await(lock, has_come);
        is_receiving_ = false;
        if (came) return star_.next_of_peer(from);
    }
    fail("a text of rank " + std::to_string(from.value()), "it hasn't come");
}

OPTPIPE_INLINE void control_channel::fail(const std::string& waited_for, const std::string& missing) {
    failed_.report(self(), waited_for,
                   missing + " within " +
                       std::to_string(std::chrono::duration_cast<std::chrono::milliseconds>(own_patience()).count()) +
                       " ms");
    throw by_.verdict();
}

OPTPIPE_INLINE void control_channel::cancel(std::string_view what_it_did, std::string_view reason) {
    failed_.report(self(), std::string{what_it_did}, std::string{reason});
}

OPTPIPE_INLINE void control_channel::take(rank from, execution::control_letter what) {
    star_.take(from, std::move(what));
    changed_.notify_all();
}

OPTPIPE_INLINE std::chrono::nanoseconds control_channel::own_patience() const {
    return self() == rank{0} ? patience_ : 2 * patience_;
}

OPTPIPE_INLINE void control_channel::wake() noexcept {
    const std::scoped_lock lock{mutex_};
    changed_.notify_all();
}

OPTPIPE_INLINE control_board::control_board(std::size_t ranks, std::chrono::nanoseconds patience, failure& failed)
    : failed_{failed} {
    control_carrier& by = *this;
    for (const rank r : index_range<rank>{ranks})
        channels_.push_back(std::make_unique<control_channel>(r, ranks, patience, failed, mutex_, by));
}

OPTPIPE_INLINE void control_board::carry(control_channel& from) {
    for (auto& [to, what] : from.take_outbox()) {
        auto& receiver = (*this)[to];
        receiver.take(from.self(), std::move(what));
        carry(receiver); // the receiver may have an answer to send
    }
}

} // namespace optpipe::threads
#endif
