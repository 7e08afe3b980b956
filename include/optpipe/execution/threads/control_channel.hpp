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

/// Brings the letters of control channels to their ranks, in order between any two.
class control_carrier {
public:
    /// There are letters in this rank's outbox. Called under the lock of the channel.
    virtual void carry(control_channel& from) = 0;
    /// What all ranks throw once something has failed. May wait until it is known.
    virtual execution_error verdict() = 0;

protected:
    ~control_carrier() = default;
};

/// One rank's end of a control channel, whatever carries its letters. All of its state is under `mutex`, which several
/// may share.
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

    // For the carrier, under the lock.

    [[nodiscard]] std::vector<execution::control_star::addressed> take_outbox() { return star_.take_outbox(); }
    [[nodiscard]] bool has_outgoing() const { return star_.has_outgoing(); }
    void take(rank from, execution::control_letter what);
    /// Whether its rank has begun a minimum that it hasn't read.
    [[nodiscard]] bool is_waited_for() const { return star_.is_under_way(); }

private:
    /// Rank 0 knows which ranks are missing, so the others give it time to say so.
    [[nodiscard]] std::chrono::nanoseconds own_patience() const;
    template <class Act> void send(const Act& act) {
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
    std::condition_variable changed_;
    wake_registration registration_;
};

static_assert(execution::check_control_channel<control_channel>());

/// The control channels of ranks that are threads of one process, whatever executor they have.
class control_board final : private control_carrier {
public:
    /// `failed`: what a rank that cancels is reported to, and what ends every wait.
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
    send([&] { star_.publish(text); });
}

OPTPIPE_INLINE std::optional<std::string> control_channel::next_published() {
    return ask([&] { return star_.next_published(); });
}

OPTPIPE_INLINE void control_channel::report(std::string_view text) {
    send([&] { star_.report(text); });
}

OPTPIPE_INLINE std::optional<execution::rank_text> control_channel::next_report() {
    return ask([&] { return star_.next_report(); });
}

OPTPIPE_INLINE void control_channel::begin_minimum(std::uint64_t value) {
    send([&] { star_.begin_minimum(value); });
}

OPTPIPE_INLINE std::uint64_t control_channel::minimum() {
    std::string missing;
    {
        std::unique_lock lock{mutex_};
        OPTPIPE_EXPECT(star_.is_under_way(), "control channel: no minimum has been begun");
        changed_.wait_for(lock, own_patience(), [&] { return star_.has_minimum() || failed_.happened().load(); });
        if (star_.has_minimum()) return star_.read_minimum();
        missing = star_.missing();
    }
    // Only the first failure counts.
    failed_.report(self(), "a minimum of all ranks",
                   missing + " hasn't come for it within " +
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
        carry(receiver); // which may have an answer
    }
}

} // namespace optpipe::threads
#endif
