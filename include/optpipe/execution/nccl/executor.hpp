#pragma once

#include "optpipe/core/index.hpp"
#include "optpipe/execution/cuda/device.hpp"
#include "optpipe/execution/cuda/executor.hpp"
#include "optpipe/execution/cuda/lane.hpp"
#include "optpipe/execution/cuda/options.hpp"
#include "optpipe/execution/cuda/stream.hpp"
#include "optpipe/execution/error.hpp"
#include "optpipe/execution/nccl/communicator.hpp"
#include "optpipe/program/ir.hpp"

#include <cuda_runtime_api.h>

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace optpipe::nccl {

/// What rank 0 makes and all ranks need: hand it round with `bootstrap`, or MPI.
struct world_id {
    ncclUniqueId forward{};
    ncclUniqueId backward{};

    [[nodiscard]] static world_id make() { return {communicator::make_id(), communicator::make_id()}; }
    [[nodiscard]] std::span<std::byte> bytes() { return std::as_writable_bytes(std::span{this, 1}); }
};

/// The communicators of an engine that there is already: of the pipeline's ranks, in their order, on `options::device`.
/// They are borrowed: the engine keeps them until the `member` is gone, and uses them for nothing else meanwhile.
struct borrowed_communicators {
    /// Two of them, as NCCL runs what is on one in a single order.
    ncclComm_t activations = nullptr;
    ncclComm_t gradients = nullptr;
    /// Ends what is under way on one of them, as `ncclCommAbort` does: what waits for a rank that is gone would never
    /// be over. Called when something has gone wrong, once for each at most, by the rank's thread; it must not throw.
    communicator::abort_call abort{};
};

/// Carries messages by NCCL, activations and gradients with a communicator each.
class messages final : public cuda::detail::carrier {
public:
    using milliseconds = std::chrono::milliseconds;

    /// Returns when all ranks have come and the links to the neighbours, which NCCL makes at their first use, are
    /// there.
    messages(const world_id& id, rank self, std::size_t ranks, milliseconds patience)
        : patience_{patience}, forward_{id.forward, static_cast<int>(self.value()), static_cast<int>(ranks), patience,
                                        "activations"},
          backward_{id.backward, static_cast<int>(self.value()), static_cast<int>(ranks), patience, "gradients"} {
        warm_up(ranks);
    }
    messages(const borrowed_communicators& from, milliseconds patience)
        : patience_{patience}, forward_{from.activations, from.abort, patience, "activations"},
          backward_{from.gradients, from.abort, patience, "gradients"} {
        if (from.activations == from.gradients)
            throw optpipe::error{"activations and gradients need a communicator each"};
        if (forward_.rank() != backward_.rank() || forward_.ranks() != backward_.ranks())
            throw optpipe::error{"the communicators of activations and gradients aren't of the same ranks"};
        warm_up(static_cast<std::size_t>(forward_.ranks()));
    }
    [[nodiscard]] std::size_t ranks() const { return static_cast<std::size_t>(forward_.ranks()); }
    [[nodiscard]] int device() const { return forward_.device(); }

    bool carry(cuda::detail::lane_state& on, cuda::detail::command& what) override {
        batch open;
        const auto stream = on.target.native();
        for (std::size_t i = 0; i < what.count; ++i) {
            const auto& m = what.messages[i];
            auto& by = direction_of(m.label.op) == message_direction::forward ? forward_ : backward_;
            const auto peer = static_cast<int>(m.label.peer.value());
            if (m.sends)
                open.send(by, {m.from, m.bytes}, peer, stream);
            else
                open.receive(by, {m.to, m.bytes}, peer, stream);
        }
        open.close(to_string(what.label));
        if (used_ == under_way_.size()) under_way_.emplace_back();
        auto& now = under_way_[used_++];
        now.first = what.label;
        on.target.record(now.second);
        return true;
    }
    void forget(cuda::detail::lane_state&) noexcept override {}

    void check_health() override {
        if (!forward_.healthy() || !backward_.healthy()) return; // given up
        forward_.check_health("waiting");
        backward_.check_health("waiting");
    }
    [[nodiscard]] std::optional<task_label> first_open() const override {
        for (std::size_t i = 0; i < used_; ++i)
            if (!under_way_[i].second.done()) return under_way_[i].first;
        return std::nullopt;
    }
    void forget_messages() noexcept override { used_ = 0; }
    void abandon() noexcept override {
        forward_.abort();
        backward_.abort();
    }

private:
    void warm_up(std::size_t ranks) {
        if (ranks < 2) return;
        cuda::stream s;
        const cuda::device_slab room{4};
        try {
            for (auto* by : {&forward_, &backward_})
                greet_neighbours(*by, room.memory(), s);
            if (!cuda::detail::await(s, std::chrono::steady_clock::now() + patience_, [&] { check_health(); }))
                throw timeout_error{"the first messages: not over after " + std::to_string(patience_.count()) + " ms"};
        } catch (...) {
            abandon(); // before memory goes that a message may still use
            throw;
        }
    }
    static void greet_neighbours(communicator& by, std::span<std::byte> room, cuda::stream_ref where) {
        const int count = by.ranks();
        const std::array<int, 2> neighbours{(by.rank() + 1) % count, (by.rank() + count - 1) % count};
        batch open;
        for (std::size_t i = 0; i < neighbours.size() && (i == 0 || count > 2); ++i) {
            open.send(by, room.subspan(i, 1), neighbours[i], where.native());
            open.receive(by, room.subspan(2 + i, 1), neighbours[i], where.native());
        }
        open.close("the first messages");
    }

    milliseconds patience_;
    communicator forward_;
    communicator backward_;
    /// The exchanges since all were over.
    std::vector<std::pair<task_label, cuda::event>> under_way_;
    std::size_t used_ = 0;
};

/// One rank with a GPU of its own, which talks to the others by NCCL. All ranks make theirs at the same time: threads
/// of one process, or processes on one machine or many.
///
/// `options::patience` has to be longer than a step takes. An error names the rank that reports it: each finds out by
/// itself that another is gone.
class member {
public:
    /// Throws `execution_error` if it can't join the others.
    member(const world_id& id, rank self, std::size_t ranks, const cuda::options& how = {}) try
        : device_{how.device}, messages_{id, self, ranks, how.patience}, executor_{group_, messages_, how, self,
                                                                                   ranks} {
        group_.begin_times(how);
    } catch (const std::exception& e) {
        throw execution_error{self, "joining the others", e.what()};
    }
    /// Which rank this is, and of how many, is what the communicators say.
    explicit member(const borrowed_communicators& from, const cuda::options& how = {})
        : member{rank{communicator::rank_in(from.activations)}, from, how} {}
    [[nodiscard]] cuda::executor& executor() { return executor_; }

private:
    member(rank self, const borrowed_communicators& from, const cuda::options& how) try
        : device_{how.device}, messages_{from, how.patience}, executor_{group_, messages_, how, self,
                                                                        messages_.ranks()} {
        if (messages_.device() != how.device)
            throw optpipe::error{"communicators of device " + std::to_string(messages_.device()) +
                                 ", to be used on device " + std::to_string(how.device)};
        group_.begin_times(how);
    } catch (const std::exception& e) {
        throw execution_error{self, "joining the others", e.what()};
    }

    cuda::current_device device_;
    cuda::detail::rank_group group_;
    messages messages_;
    cuda::executor executor_;
};

} // namespace optpipe::nccl
