#pragma once

#include "optpipe/core/compiled.hpp"
#include "optpipe/execution/executor.hpp"
#include "optpipe/execution/threads/control_channel.hpp"
#include "optpipe/execution/threads/lane.hpp"
#include "optpipe/execution/threads/world.hpp"

#include <atomic>
#include <cstddef>
#include <memory>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

namespace optpipe::threads {

/// Host memory that simulates device memory, or a device's host memory. The slab's bytes count in `in_use` until the
/// slab is destroyed.
class slab {
public:
    slab(std::size_t bytes, std::shared_ptr<std::atomic<std::size_t>> in_use);
    slab(slab&& other) noexcept;
    slab& operator=(slab&& other) noexcept;
    ~slab();
    [[nodiscard]] std::span<std::byte> memory() const { return {reinterpret_cast<std::byte*>(data_.get()), bytes_}; }

private:
    struct alignas(64) block {
        std::byte bytes[64];
    };
    std::unique_ptr<block[]> data_;
    std::size_t bytes_;
    std::shared_ptr<std::atomic<std::size_t>> in_use_;
};

/// Allocates the memory of one rank within fixed limits.
class memory {
public:
    explicit memory(rank_state& of) : of_{of} {}

    [[nodiscard]] slab device(std::size_t bytes) { return take(bytes, device_, of_.all.how.device_memory, "device"); }
    [[nodiscard]] slab host(std::size_t bytes) { return take(bytes, host_, of_.all.how.host_memory, "host"); }

private:
    using counter = std::shared_ptr<std::atomic<std::size_t>>;

    slab take(std::size_t bytes, const counter& in_use, const per_rank<std::size_t>& limits, const char* which);

    rank_state& of_;
    counter device_ = std::make_shared<std::atomic<std::size_t>>(0);
    counter host_ = std::make_shared<std::atomic<std::size_t>>(0);
};

class copy_engine {
public:
    explicit copy_engine(rank_state& of) : of_{of} {}
    void copy(lane& on, execution::copy_direction, const task_label& label, execution::copy_pieces pieces);

private:
    rank_state& of_;
};

/// Carries messages between the ranks of a cluster. A send waits for its receiver.
class transport {
public:
    explicit transport(rank_state& of) : of_{of} {}
    void exchange(lane& on, execution::message_ends messages);

private:
    rank_state& of_;
};

/// One rank of a cluster. Only the thread that issues may use an executor.
class executor {
public:
    using lane_type = lane;

    executor(world& all, rank self) : state_{all, self}, copies_{state_}, transport_{state_}, memory_{state_} {}
    executor(const executor&) = delete;
    executor& operator=(const executor&) = delete;

    [[nodiscard]] rank self() const { return state_.self; }
    [[nodiscard]] std::size_t ranks() const { return state_.all.ranks; }
    [[nodiscard]] lane open_lane(lane_kind, std::size_t commands) { return {state_, commands}; }
    [[nodiscard]] marker make_marker() { return marker{state_.all.failed}; }
    [[nodiscard]] copy_engine& copies() { return copies_; }
    [[nodiscard]] threads::transport& transport() { return transport_; }
    [[nodiscard]] threads::memory& memory() { return memory_; }

    void finish();
    void cancel(std::string_view what_it_did, std::string_view reason);

private:
    rank_state state_;
    copy_engine copies_;
    threads::transport transport_;
    threads::memory memory_;
};

static_assert(execution::check_executor<executor>());

/// Ranks that are threads of this process. Lanes run in parallel, and buffers are real memory. The speeds of the links
/// are options.
class cluster {
public:
    /// Throws `error` if an option is for another number of ranks.
    explicit cluster(std::size_t ranks, options how = {});
    [[nodiscard]] std::size_t ranks() const { return executors_.size(); }
    [[nodiscard]] executor& operator[](rank r) { return *executors_[r.position()]; }
    /// The rank's control channel. A failure of the channel or the executor makes both unusable on all ranks.
    [[nodiscard]] control_channel& control(rank r) { return control_[r]; }

private:
    world all_;
    message_board board_;
    control_board control_;
    std::vector<std::unique_ptr<executor>> executors_;
};

} // namespace optpipe::threads

#if OPTPIPE_DEFINES(execution)
#include "optpipe/core/contract.hpp"

#include <algorithm>
#include <cstdint>
#include <mutex>
#include <new>
#include <string>

namespace optpipe::threads {

OPTPIPE_INLINE slab::slab(std::size_t bytes, std::shared_ptr<std::atomic<std::size_t>> in_use)
    : data_{std::make_unique_for_overwrite<block[]>((bytes + sizeof(block) - 1) / sizeof(block))}, bytes_{bytes},
      in_use_{std::move(in_use)} {}

OPTPIPE_INLINE slab::slab(slab&& other) noexcept
    : data_{std::move(other.data_)}, bytes_{std::exchange(other.bytes_, 0)}, in_use_{std::move(other.in_use_)} {}

OPTPIPE_INLINE slab& slab::operator=(slab&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    std::swap(in_use_, other.in_use_);
    return *this;
}

OPTPIPE_INLINE slab::~slab() {
    if (in_use_) in_use_->fetch_sub(bytes_);
}

OPTPIPE_INLINE slab memory::take(std::size_t bytes, const counter& in_use, const per_rank<std::size_t>& limits,
                                 const char* which) {
    const auto before = in_use->fetch_add(bytes);
    if (limits.size() > 0 && before + bytes > limits[of_.self]) {
        in_use->fetch_sub(bytes);
        throw error{std::to_string(bytes) + " bytes on the " + which + " beside " + std::to_string(before) +
                    " exceed its limit of " + std::to_string(limits[of_.self])};
    }
    try {
        return {bytes, in_use};
    } catch (const std::bad_alloc&) {
        in_use->fetch_sub(bytes);
        throw error{std::to_string(bytes) + " bytes on the " + which + ": this machine has no such room"};
    }
}

OPTPIPE_INLINE void copy_engine::copy(lane& on, execution::copy_direction, const task_label& label,
                                      execution::copy_pieces pieces) {
    auto& c = on.thread_->next();
    c.what = lane_command::what_kind::copy;
    c.label = label;
    c.pieces = pieces;
    c.issued = of_.all.clock.now();
    on.thread_->publish();
}

OPTPIPE_INLINE void transport::exchange(lane& on, execution::message_ends messages) {
    OPTPIPE_EXPECT(messages.size() <= execution::most_messages, "threads: at most 4 messages in an exchange");
    auto& c = on.thread_->next();
    c.what = lane_command::what_kind::exchange;
    c.issued = of_.all.clock.now();
    c.label = messages.empty() ? task_label{} : messages.front().label;
    c.count = static_cast<std::uint32_t>(messages.size());
    for (std::size_t i = 0; i < messages.size(); ++i) {
        const auto& m = messages[i];
        c.offers[i] = {.sends = m.sends, .label = m.label, .to = m.to, .from = m.from, .bytes = m.bytes};
    }
    on.thread_->publish();
}

OPTPIPE_INLINE void executor::finish() {
    {
        std::unique_lock lock{state_.mutex};
        state_.idle.wait(lock, [&] {
            return std::all_of(state_.lanes.begin(), state_.lanes.end(),
                               [](const lane_thread* l) { return l->is_idle(); });
        });
    }
    if (state_.silent.load()) throw execution_error{self(), to_string(*state_.all.how.faults.silent_at), "fell silent"};
    if (state_.all.failed.happened().load()) throw state_.all.failed.what();
}

OPTPIPE_INLINE void executor::cancel(std::string_view what_it_did, std::string_view reason) {
    state_.all.failed.report(self(), std::string{what_it_did}, std::string{reason});
}

namespace detail {

inline options checked_options(options how, std::size_t ranks) {
    const auto check = [ranks](std::size_t given, const char* what) {
        if (given != 0 && given != ranks)
            throw error{"threads: " + std::string{what} + " of " + std::to_string(given) + " ranks, of " +
                        std::to_string(ranks)};
    };
    check(how.device_memory.size(), "device memory");
    check(how.host_memory.size(), "host memory");
    check(how.transfer.link.size(), "links to the host");
    return how;
}

} // namespace detail

OPTPIPE_INLINE cluster::cluster(std::size_t ranks, options how)
    : all_{ranks, detail::checked_options(std::move(how), ranks), board_}, board_{ranks, all_.how, all_.failed},
      control_{ranks, all_.how.patience, all_.failed} {
    for (const rank r : index_range<rank>{ranks})
        executors_.push_back(std::make_unique<executor>(all_, r));
}

} // namespace optpipe::threads
#endif
