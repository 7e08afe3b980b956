#pragma once

#include "optpipe/core/index.hpp"
#include "optpipe/execution/control_channel.hpp"
#include "optpipe/execution/copy_engine.hpp"
#include "optpipe/execution/executor.hpp"
#include "optpipe/execution/lane.hpp"
#include "optpipe/execution/memory.hpp"
#include "optpipe/execution/reversible_model.hpp"
#include "optpipe/execution/stage_model.hpp"
#include "optpipe/execution/transport.hpp"
#include "optpipe/program/ir.hpp"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

/// Types with the minimal requirements of each concept of execution.
namespace optpipe::testing::archetype {

struct lane {
    struct marker {
        marker(marker&&) = default;
        marker& operator=(marker&&) = default;
    };
    lane(lane&&) = default;
    lane& operator=(lane&&) = default;
    template <execution::small_work Work> void launch(const task_label&, const Work&) {}
    void record(marker&) {}
    void wait(const marker&) {}
};
struct copy_engine {
    void copy(lane&, execution::copy_direction, const task_label&, execution::copy_pieces) {}
};
struct slab {
    slab(slab&&) = default;
    slab& operator=(slab&&) = default;
    std::span<std::byte> memory() const { return {}; }
};
struct device_memory {
    slab device(std::size_t);
    slab host(std::size_t);
};
struct transport {
    void exchange(lane&, execution::message_ends) {}
};
struct stage_model {
    void forward(lane&, const execution::forward_task&) {}
    void backward_input(lane&, const execution::backward_task&) {}
    void backward_weight(lane&, const execution::weight_task&) {}
};
struct overlapping_stage_model : stage_model {
    void overlap(lane&, const execution::forward_task&, const execution::backward_task&) {}
};
struct reversible_model : stage_model {
    double gradient_squares(lane&, stage) { return 0.0; }
    void update(lane&, stage, const execution::update_decision&) {}
    void revise(lane&, stage, const execution::update_decision&) {}
    void settle(lane&, stage) {}
    void abandon(lane&, stage) {}
};
struct executor {
    using lane_type = archetype::lane;
    archetype::lane open_lane(lane_kind, std::size_t);
    archetype::lane::marker make_marker();
    copy_engine copies() { return {}; }
    archetype::transport transport() { return {}; }
    device_memory memory() { return {}; }
    optpipe::rank self() const { return {}; }
    std::size_t ranks() const { return 1; }
    void finish() {}
    void cancel(std::string_view, std::string_view) {}
};
struct control_channel {
    optpipe::rank self() const { return {}; }
    std::size_t ranks() const { return 1; }
    void publish(std::string_view) {}
    std::optional<std::string> next_published() { return {}; }
    void report(std::string_view) {}
    std::optional<execution::rank_text> next_report() { return {}; }
    void begin_minimum(std::uint64_t) {}
    std::uint64_t minimum() { return 0; }
    void cancel(std::string_view, std::string_view) {}
};
struct peer_channel {
    optpipe::rank self() const { return {}; }
    std::size_t ranks() const { return 1; }
    void send(optpipe::rank, std::string_view) {}
    std::string receive(optpipe::rank) { return {}; }
};

static_assert(execution::lane<lane> && execution::copy_engine<copy_engine, lane> && execution::memory<device_memory> &&
              execution::transport<transport, lane> && execution::stage_model<stage_model, lane> &&
              execution::overlapping_stage_model<overlapping_stage_model, lane> &&
              execution::reversible_model<reversible_model, lane> && execution::executor<executor> &&
              execution::control_channel<control_channel> && execution::peer_channel<peer_channel>);

} // namespace optpipe::testing::archetype
