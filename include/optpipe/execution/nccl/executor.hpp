#pragma once

#include "optpipe/core/index.hpp"
#include "optpipe/execution/cuda/device.hpp"
#include "optpipe/execution/cuda/executor.hpp"
#include "optpipe/execution/cuda/lane.hpp"
#include "optpipe/execution/cuda/options.hpp"
#include "optpipe/execution/cuda/stream.hpp"
#include "optpipe/execution/nccl/communicator.hpp"
#include "optpipe/schedule/program.hpp"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <thread>
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

    /// NCCL doesn't notice that a peer is gone, or not always: who waits longer than the patience gives up.
    void await(cuda::stream_ref where) override {
        const auto deadline = std::chrono::steady_clock::now() + patience_;
        while (!is_over(where)) {
            if (healthy()) {
                forward_.check_health("waiting");
                backward_.check_health("waiting");
            }
            if (std::chrono::steady_clock::now() >= deadline) throw late();
            std::this_thread::sleep_for(std::chrono::microseconds{20});
        }
        if (std::all_of(under_way_.begin(), under_way_.begin() + static_cast<std::ptrdiff_t>(used_),
                        [](const auto& each) { return each.second.done(); }))
            used_ = 0;
    }
    void abandon() noexcept override {
        forward_.abort();
        backward_.abort();
    }

private:
    [[nodiscard]] bool healthy() const { return forward_.healthy() && backward_.healthy(); }
    static bool is_over(cuda::stream_ref where) {
        const auto status = cudaStreamQuery(where.native());
        if (status != cudaErrorNotReady) cuda::check(status, "cudaStreamQuery");
        return status == cudaSuccess;
    }
    [[nodiscard]] cuda::detail::stuck_error late() const {
        const auto reason = "not over after " + std::to_string(patience_.count()) + " ms";
        for (std::size_t i = 0; i < used_; ++i)
            if (!under_way_[i].second.done()) return {to_string(under_way_[i].first), reason};
        return {"on the device", reason};
    }
    void warm_up(std::size_t ranks) {
        if (ranks < 2) return;
        cuda::stream s;
        const cuda::device_slab room{4};
        try {
            for (auto* by : {&forward_, &backward_})
                greet_neighbours(*by, room.memory(), s);
            await(s);
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
    member(const world_id& id, rank self, std::size_t ranks, const cuda::options& how = {})
        : device_{how.device}, messages_{id, self, ranks, how.patience}, executor_{group_, messages_, how, self,
                                                                                   ranks} {
        group_.begin_times(how);
    }
    [[nodiscard]] cuda::executor& executor() { return executor_; }

private:
    cuda::current_device device_;
    cuda::detail::rank_group group_;
    messages messages_;
    cuda::executor executor_;
};

} // namespace optpipe::nccl
