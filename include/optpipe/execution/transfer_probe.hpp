#pragma once

#include "optpipe/execution/arenas.hpp"
#include "optpipe/execution/copy_engine.hpp"
#include "optpipe/execution/executor.hpp"
#include "optpipe/program/ir.hpp"
#include "optpipe/schedule/operation.hpp"

#include <array>
#include <cstddef>
#include <optional>
#include <span>
#include <utility>

namespace optpipe::execution {

/// The measured times for moving a stash to the host and back.
struct probed_transfer {
    task_times offload{};
    task_times reload{};
};

/// Measures a transfer that needn't be part of any program. Before a step, a probe copies bytes to the host and back in
/// its own lane. A probe copies the first bytes of the arenas, which stay unchanged. Commands that use the probed bytes
/// must wait for `done()`. The first probe runs twice, and its slower first run doesn't count. A probe allocates no
/// memory. Only the thread that issues may use a probe. The executor must outlive the probe.
template <class Executor> class transfer_probe {
    using lane_type = lane_of<Executor>;
    static_assert(timed_lane<lane_type>);

public:
    /// Throws the executor's exception if the executor has no more lanes or markers.
    explicit transfer_probe(Executor& on)
        : executor_{&on}, done_{on.make_marker()}, lane_{on.open_lane(lane_kind::copy, commands)} {}
    transfer_probe(const transfer_probe&) = delete;
    transfer_probe& operator=(const transfer_probe&) = delete;

    /// Whether the library owns the arenas, and the arenas are large enough for a stash of `bytes`.
    [[nodiscard]] static bool is_possible(const arena_memory& room, std::size_t bytes) {
        return bytes > 0 && bytes <= room.device.size() && bytes <= room.host.size();
    }
    /// Contract: `is_possible(room, bytes)` holds, `what` is an offload, and this rank is idle.
    void issue(const operation& what, const arena_memory& room, std::size_t bytes) {
        const auto device = room.device.first(bytes);
        const auto host = room.host.first(bytes);
        out_ = {copy_piece{host, device}};
        in_ = {copy_piece{device, host}};
        lane_.forget_times();
        if (!std::exchange(is_warm_, true)) there_and_back(what);
        there_and_back(what);
        lane_.record(done_);
    }
    [[nodiscard]] const marker_of<Executor>& done() const { return done_; }
    /// The measured times, valid after the executor has finished. Empty if the executor measures no times.
    [[nodiscard]] std::optional<probed_transfer> times() const {
        const std::span<const task_times> ran = lane_.times();
        if (ran.size() < 2) return std::nullopt;
        return probed_transfer{ran[ran.size() - 2], ran[ran.size() - 1]};
    }

private:
    /// Number of commands: two runs of two copies each, and the marker.
    static constexpr std::size_t commands = 5;

    void there_and_back(const operation& what) {
        auto back = what;
        back.kind = operation_kind::reload;
        executor_->copies().copy(lane_, copy_direction::out, {task_label::task_kind::operation, what, {}}, out_);
        executor_->copies().copy(lane_, copy_direction::in, {task_label::task_kind::operation, back, {}}, in_);
    }

    Executor* executor_;
    std::array<copy_piece, 1> out_{};
    std::array<copy_piece, 1> in_{};
    bool is_warm_ = false;
    // The lane is destroyed first, because it uses the marker.
    marker_of<Executor> done_;
    lane_type lane_;
};

} // namespace optpipe::execution
