#pragma once

#include "optpipe/core/caught_reason.hpp"
#include "optpipe/core/index.hpp"
#include "optpipe/execution/cuda/device.hpp"
#include "optpipe/execution/cuda/executor.hpp"
#include "optpipe/execution/cuda/lane.hpp"
#include "optpipe/execution/cuda/options.hpp"
#include "optpipe/execution/cuda/slab.hpp"
#include "optpipe/execution/cuda/stream.hpp"
#include "optpipe/execution/error.hpp"
#include "optpipe/execution/failure_channel.hpp"
#include "optpipe/execution/nccl/clock.hpp"
#include "optpipe/execution/nccl/communicator.hpp"
#include "optpipe/execution/nccl/watchdog.hpp"
#include "optpipe/program/ir.hpp"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <exception>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace optpipe::nccl {

/// The number of communicators per direction. NCCL runs all work of a communicator in a single order, even on several
/// streams.
enum class communicator_layout : std::uint8_t {
    per_direction, ///< one communicator, for `message_lanes::per_direction` and `single`
    /// Two communicators: one for messages from even ranks, one for those from odd ranks. Programs with
    /// `message_lanes::separate` need this layout. Takes twice the memory of `per_direction`.
    per_sender,
};

/// The ids of the communicators. Rank 0 makes the ids, and all ranks need them. Distribute the bytes of a `world_id`
/// with the functions of `bootstrap`, or by MPI.
struct world_id {
    /// The ids of the communicators for activations, followed by those of the communicators for gradients.
    std::array<ncclUniqueId, 4> ids{};
    communicator_layout layout = communicator_layout::per_direction;

    [[nodiscard]] static world_id make(communicator_layout layout = communicator_layout::per_direction) {
        world_id made{.layout = layout};
        for (std::size_t i = 0; i < made.count(); ++i)
            made.ids[i] = communicator::make_id();
        return made;
    }
    [[nodiscard]] std::size_t count() const { return layout == communicator_layout::per_direction ? 2 : 4; }
    [[nodiscard]] std::span<std::byte> bytes() { return std::as_writable_bytes(std::span{this, 1}); }
};

/// Communicators of an existing engine, on `options::device`. The ranks of the communicators are the pipeline's ranks,
/// in the same order. The communicators are borrowed. Until the `member` is destroyed, the engine must neither destroy
/// nor use the communicators.
struct borrowed_communicators {
    /// The communicators for activations and for gradients. NCCL runs the work of one communicator in a single order.
    /// Communicators should be non-blocking. A blocking communicator may block the issuing thread until the peer has
    /// issued the matching message. If the peer is lost, only `abort` releases the issuing thread.
    ncclComm_t activations = nullptr;
    ncclComm_t gradients = nullptr;
    /// Aborts the running work of one communicator, as `ncclCommAbort` does. Without `abort`, a wait for a lost rank
    /// would never end. Called after a failure, within a group (`ncclGroupStart`), at most once per communicator. If
    /// NCCL blocks the rank's thread, another thread calls `abort`. `abort` must not throw.
    communicator::abort_call abort{};
};

/// Carries messages by NCCL.
class messages final : public cuda::detail::carrier {
public:
    using milliseconds = std::chrono::milliseconds;
    using clock = std::chrono::steady_clock;

    /// Returns when all ranks have joined and all links exist. The constructor sends first messages, because NCCL
    /// creates links at first use. `failures` has the same meaning as in `cuda::options`.
    messages(const world_id& id, rank self, std::size_t ranks, milliseconds patience,
             const communicator_limits& limits = {}, const execution::failure_channel* failures = nullptr)
        : patience_{patience}, failures_{failures}, layout_{id.layout} {
        constexpr std::array all{"activations", "gradients"};
        try {
            for (std::size_t i = 0; i < id.count(); ++i) {
                std::string name = all[2 * i / id.count()];
                if (layout_ == communicator_layout::per_sender) name += i % 2 == 0 ? " of even ranks" : " of odd ranks";
                communicators_.emplace_back(id.ids[i], static_cast<int>(self.value()), static_cast<int>(ranks),
                                            patience, std::move(name), limits, failures);
            }
        } catch (...) {
            abandon();
            throw;
        }
        warm_up();
    }
    messages(const borrowed_communicators& from, milliseconds patience,
             const execution::failure_channel* failures = nullptr)
        : patience_{patience}, failures_{failures} {
        communicators_.emplace_back(from.activations, from.abort, patience, "activations", failures);
        communicators_.emplace_back(from.gradients, from.abort, patience, "gradients", failures);
        if (from.activations == from.gradients)
            throw optpipe::error{"activations and gradients need a communicator each"};
        if (any().rank() != communicators_[1].rank() || any().ranks() != communicators_[1].ranks())
            throw optpipe::error{"the communicators of activations and gradients aren't of the same ranks"};
        watched_ = std::make_unique<watchdog>(patience, [this] { abandon(); });
        warm_up();
    }
    messages(const messages&) = delete;
    messages& operator=(const messages&) = delete;
    ~messages() {
        if (!healthy()) abandon();
    }
    [[nodiscard]] std::size_t ranks() const { return static_cast<std::size_t>(any().ranks()); }
    [[nodiscard]] int device() const { return any().device(); }

    void attach(cuda::detail::lane_state& on, lane_kind kind, std::size_t commands) override {
        const auto way = separate_way(kind);
        if (way && layout_ == communicator_layout::per_direction)
            for (const auto& [other, of] : lanes_)
                if (of.way == way && of.kind != kind)
                    throw optpipe::error{
                        "lanes that send and receive " +
                        std::string{*way == message_direction::forward ? "activations" : "gradients"} +
                        " on one communicator would wait for each other: lower with message_lanes::per_direction or "
                        "single, or join with communicator_layout::per_sender"};
        lanes_[&on] = {kind, way, commands};
        most_under_way_ += commands;
    }
    void forget(cuda::detail::lane_state& on) noexcept override {
        const auto gone = lanes_.find(&on);
        if (gone == lanes_.end()) return;
        most_under_way_ -= gone->second.commands;
        lanes_.erase(gone);
    }
    bool carry(cuda::detail::lane_state& on, cuda::detail::command& what) override {
        batch open{watched_.get()};
        const auto stream = on.target.native();
        // NCCL runs the communicators of a group in the order of their first use. With different orders, ranks could
        // wait for each other forever.
        for (auto& by : communicators_)
            for (const auto& m : std::span{what.messages}.first(what.count)) {
                const auto peer = static_cast<int>(m.label.peer.value());
                if (&communicator_of(direction_of(m.label.op), m.sends ? any().rank() : peer) != &by) continue;
                if (m.sends)
                    open.send(by, {m.from, m.bytes}, peer, stream);
                else
                    open.receive(by, {m.to, m.bytes}, peer, stream);
            }
        open.close(to_string(what.label));
        auto& now = next_under_way();
        now.first = what.label;
        on.target.record(now.second);
        return true;
    }

    void check_health() override {
        if (!healthy()) return; // the communicators have been aborted
        for (auto* all : {&communicators_, &beside_})
            for (auto& each : *all)
                each.check_health("waiting");
    }
    [[nodiscard]] std::optional<task_label> first_open() const override {
        for (std::size_t i = 0; i < used_; ++i)
            if (!under_way_[i].second.done()) return under_way_[i].first;
        return std::nullopt;
    }
    void forget_messages() noexcept override { used_ = 0; }
    /// Aborts sums before messages. The reverse order would let a sum use data that never arrived.
    void abandon() noexcept override { abort_together(beside_, communicators_); }

    /// Makes a communicator for work other than the pipeline's messages. The communicator has a fixed address, and
    /// lives as long as the pipeline's communicators. All ranks of the new communicator must call `join_beside`
    /// together.
    [[nodiscard]] communicator& join_beside(const ncclUniqueId& id, int self, int ranks, std::string name,
                                            const communicator_limits& limits) {
        auto& made = beside_.emplace_back(id, self, ranks, patience_, std::move(name), limits, failures_);
        const auto what = "the first sum of " + made.name();
        first_use(what, [&](std::span<std::byte> room, cuda::stream_ref where) {
            batch open;
            open.add_up(made, std::span{reinterpret_cast<float*>(room.data()), 1}, where.native());
            open.close(what);
        });
        return made;
    }

    /// An instant that all ranks share, on this rank's clock. All ranks must call `share_begin` together, before the
    /// first step.
    [[nodiscard]] shared_instant<clock> share_begin() {
        cuda::stream s;
        const cuda::device_slab device{sizeof(std::int64_t)};
        const cuda::pinned_slab host{sizeof(std::int64_t)};
        const auto there = device.memory();
        const auto here = host.memory().first(there.size());
        const auto wait = [&](const char* what) {
            if (!cuda::detail::await(s, clock::now() + patience_, [&] { check_start(); }))
                throw timeout_error{std::string{what} + ": not over after " + std::to_string(patience_.count()) +
                                    " ms"};
        };
        const auto send = [&](int peer, std::int64_t number) {
            std::memcpy(here.data(), &number, sizeof number);
            s.copy(there.data(), here.data(), here.size(), cudaMemcpyHostToDevice);
            batch open{watched_.get()};
            open.send(communicator_of(message_direction::forward, any().rank()), there, peer, s.native());
            open.close("comparing clocks");
            wait("comparing clocks");
        };
        const auto receive = [&](int peer) {
            batch open{watched_.get()};
            open.receive(communicator_of(message_direction::forward, peer), there, peer, s.native());
            open.close("comparing clocks");
            s.copy(here.data(), there.data(), there.size(), cudaMemcpyDeviceToHost);
            wait("comparing clocks");
            std::int64_t number = 0;
            std::memcpy(&number, here.data(), sizeof number);
            return number;
        };
        try {
            return share_instant<clock>(any().rank(), any().ranks(), send, receive);
        } catch (...) {
            abandon(); // ends all messages before their memory is freed
            throw;
        }
    }

private:
    struct lane_use {
        lane_kind kind{};
        /// The direction of a lane that carries only sends or only receives; otherwise empty.
        std::optional<message_direction> way{};
        std::size_t commands = 0;
    };

    static std::optional<message_direction> separate_way(lane_kind kind) {
        switch (kind) {
        case lane_kind::send_forward:
        case lane_kind::receive_forward: return message_direction::forward;
        case lane_kind::send_backward:
        case lane_kind::receive_backward: return message_direction::backward;
        case lane_kind::compute:
        case lane_kind::copy:
        case lane_kind::copy_out:
        case lane_kind::copy_in:
        case lane_kind::forward:
        case lane_kind::backward:
        case lane_kind::communication:
        case lane_kind::reduce: return std::nullopt;
        }
        return std::nullopt;
    }
    [[nodiscard]] const communicator& any() const { return communicators_.front(); }
    [[nodiscard]] bool healthy() const {
        const auto is_healthy = [](const communicator& c) { return c.healthy(); };
        return std::all_of(communicators_.begin(), communicators_.end(), is_healthy) &&
               std::all_of(beside_.begin(), beside_.end(), is_healthy);
    }
    [[nodiscard]] communicator& communicator_of(message_direction way, int sender) {
        const std::size_t each = communicators_.size() / 2;
        const std::size_t first = way == message_direction::forward ? 0 : each;
        return communicators_[first + static_cast<std::size_t>(sender) % each];
    }
    /// The next entry for a running message. The lanes' room for commands limits the number of entries. Once the limit
    /// is reached, the oldest entry is reused.
    [[nodiscard]] std::pair<task_label, cuda::event>& next_under_way() {
        if (used_ > 0 && used_ >= most_under_way_) {
            under_way_.push_back(std::move(under_way_.front()));
            under_way_.pop_front();
            --used_;
        }
        if (used_ == under_way_.size()) under_way_.emplace_back();
        return under_way_[used_++];
    }
    /// Checks during waits outside of a step.
    void check_start() {
        execution::check_failure(failures_);
        check_health();
    }
    void warm_up() {
        if (ranks() < 2) return;
        first_use("the first messages", [&](std::span<std::byte> room, cuda::stream_ref where) {
            for (auto& by : communicators_)
                greet_neighbours(by, room, where);
        });
    }
    /// Calls `issue(device memory, stream)`, and waits for all work in the stream.
    template <class Issue> void first_use(const std::string& what, const Issue& issue) {
        cuda::stream s;
        const cuda::device_slab room{4};
        try {
            issue(room.memory(), s);
            if (!cuda::detail::await(s, clock::now() + patience_, [&] { check_start(); }))
                throw timeout_error{what + ": not over after " + std::to_string(patience_.count()) + " ms"};
        } catch (...) {
            abandon(); // ends all messages before their memory is freed
            throw;
        }
    }
    void greet_neighbours(communicator& by, std::span<std::byte> room, cuda::stream_ref where) {
        const int count = by.ranks();
        const std::array<int, 2> neighbours{(by.rank() + 1) % count, (by.rank() + count - 1) % count};
        batch open{watched_.get()};
        for (std::size_t i = 0; i < neighbours.size() && (i == 0 || count > 2); ++i) {
            open.send(by, room.subspan(i, 1), neighbours[i], where.native());
            open.receive(by, room.subspan(2 + i, 1), neighbours[i], where.native());
        }
        open.close("the first messages");
    }

    milliseconds patience_;
    const execution::failure_channel* failures_ = nullptr;
    communicator_layout layout_ = communicator_layout::per_direction;
    std::deque<communicator> communicators_;
    std::deque<communicator> beside_;
    /// The first `used_` entries are the most recent exchanges since the executor last finished. Entries from `used_`
    /// on are unused.
    std::deque<std::pair<task_label, cuda::event>> under_way_;
    std::size_t used_ = 0;
    std::size_t most_under_way_ = 0;
    std::map<const cuda::detail::lane_state*, lane_use> lanes_;
    /// Used for borrowed communicators, which may block.
    std::unique_ptr<watchdog> watched_;
};

/// One rank with its own GPU, connected by NCCL. All ranks must construct their `member` at the same time. Ranks are
/// threads of one process, or processes on one or several machines.
///
/// `options::patience` must be longer than a step. With `options::failures`, all ranks immediately learn of the first
/// failure, and throw it. Without `options::failures`, each rank detects lost ranks on its own, and the error names the
/// detecting rank.
class member {
public:
    /// Throws `execution_error` if this rank can't connect.
    member(const world_id& id, rank self, std::size_t ranks, const cuda::options& how = {},
           const communicator_limits& limits = {}) try
        : failures_{how.failures}, device_{how.device_of(self)},
          messages_{id, self, ranks, how.patience, limits, how.failures}, executor_{group_, messages_, how, self,
                                                                                    ranks} {
        begin_times(how);
    } catch (...) {
        fail_to_join(self, how.failures);
    }
    /// The communicators determine the rank and the number of ranks.
    explicit member(const borrowed_communicators& from, const cuda::options& how = {})
        : member{rank{communicator::rank_in(from.activations)}, from, how} {}
    [[nodiscard]] cuda::executor& executor() { return executor_; }
    /// Makes an additional communicator for a `gradient_sum`. The communicator lives as long as the pipeline's
    /// communicators. All ranks must join at the same time, before the first step. Throws the exceptions of `member`'s
    /// constructors.
    [[nodiscard]] communicator& join_beside(const ncclUniqueId& id, int self, int ranks, std::string name,
                                            const communicator_limits& limits = {}) {
        const cuda::current_device here{executor_.device()};
        try {
            return messages_.join_beside(id, self, ranks, std::move(name), limits);
        } catch (...) {
            fail_to_join(executor_.self(), failures_);
        }
    }

private:
    member(rank self, const borrowed_communicators& from, const cuda::options& how) try
        : failures_{how.failures}, device_{how.device_of(self)}, messages_{from, how.patience, how.failures},
          executor_{group_, messages_, how, self, messages_.ranks()} {
        if (messages_.device() != executor_.device())
            throw optpipe::error{"communicators of device " + std::to_string(messages_.device()) +
                                 ", to be used on device " + std::to_string(executor_.device())};
        begin_times(how);
    } catch (...) {
        fail_to_join(self, how.failures);
    }

    /// Tells the other ranks of the current exception, and rethrows the exception as `execution_error`. Rethrows the
    /// failure of another rank unchanged.
    [[noreturn]] static void fail_to_join(rank self, execution::failure_channel* failures) try {
        throw;
    } catch (const execution_error&) {
        throw;
    } catch (...) {
        const execution_error mine{self, "joining the others", caught_reason()};
        if (failures) failures->tell(mine);
        throw mine;
    }
    void begin_times(const cuda::options& how) {
        if (how.record_times) group_.begin = messages_.share_begin().when;
    }

    execution::failure_channel* failures_;
    cuda::current_device device_;
    cuda::detail::rank_group group_;
    messages messages_;
    cuda::executor executor_;
};

} // namespace optpipe::nccl
