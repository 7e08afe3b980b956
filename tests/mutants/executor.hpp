#pragma once

#include "archetypes/executor.hpp"
#include "optpipe/core/index.hpp"
#include "optpipe/execution/transport.hpp"
#include "optpipe/program/ir.hpp"

#include <cstddef>
#include <optional>
#include <span>
#include <string>

/// Archetypes that each lack one requirement.
namespace optpipe::testing::mutant {

struct lane_without_move : archetype::lane {
    lane_without_move(lane_without_move&&) = delete;
    lane_without_move& operator=(lane_without_move&&) = delete;
};
struct lane_without_marker {
    template <class Work> void launch(const task_label&, const Work&) {}
};
struct lane_without_launch : archetype::lane {
    void launch(const task_label&, int) = delete;
};
struct lane_without_record : archetype::lane {
    void record(marker&) = delete;
};
struct lane_without_wait : archetype::lane {
    void wait(const marker&) = delete;
};
/// The lane's `wait` changes the marker, so a reader of the marker can't use this lane.
struct lane_with_mutable_wait : archetype::lane {
    void wait(marker&) {}
};

struct copy_engine_without_copy : archetype::copy_engine {
    void copy() = delete;
};

struct memory_without_device : archetype::device_memory {
    void device(std::size_t) = delete;
};
struct memory_without_host : archetype::device_memory {
    void host(std::size_t) = delete;
};
/// The pointer doesn't tell its owner.
struct memory_with_bare_pointer : archetype::device_memory {
    std::byte* device(std::size_t) { return nullptr; }
};

/// This transport sends messages one by one.
struct transport_without_exchange {
    void send(archetype::lane&, const task_label&, std::span<const std::byte>) {}
    void receive(archetype::lane&, const task_label&, std::span<std::byte>) {}
};
/// The exchange could change the caller's messages.
struct transport_with_mutable_messages {
    void exchange(archetype::lane&, std::span<execution::message_end>) {}
};

struct stage_without_forward : archetype::stage_model {
    void forward() = delete;
};
struct stage_without_backward_input : archetype::stage_model {
    void backward_input() = delete;
};
struct stage_without_backward_weight : archetype::stage_model {
    void backward_weight() = delete;
};

struct executor_without_lane_type {};
struct executor_without_open_lane : archetype::executor {
    void open_lane() = delete;
};
struct executor_without_make_marker : archetype::executor {
    void make_marker() = delete;
};
struct executor_without_copies : archetype::executor {
    void copies() = delete;
};
struct executor_without_transport : archetype::executor {
    void transport() = delete;
};
struct executor_without_memory : archetype::executor {
    void memory() = delete;
};
struct executor_without_place : archetype::executor {
    void self() const = delete;
};
struct executor_without_finish : archetype::executor {
    void finish() = delete;
};
struct executor_without_cancel : archetype::executor {
    void cancel() = delete;
};

struct reversible_without_gradient_squares : archetype::reversible_model {
    void gradient_squares() = delete;
};
struct reversible_without_update : archetype::reversible_model {
    void update() = delete;
};
struct overlapping_without_overlap : archetype::overlapping_stage_model {
    void overlap() = delete;
};
struct reversible_without_revise : archetype::reversible_model {
    void revise() = delete;
};
struct reversible_without_settle : archetype::reversible_model {
    void settle() = delete;
};
struct reversible_without_abandon : archetype::reversible_model {
    void abandon() = delete;
};

struct peer_channel_without_place : archetype::peer_channel {
    void ranks() const = delete;
};
struct peer_channel_without_send : archetype::peer_channel {
    void send() = delete;
};
/// The channel's `receive` doesn't wait.
struct peer_channel_without_wait : archetype::peer_channel {
    std::optional<std::string> receive(optpipe::rank) { return {}; }
};

struct control_channel_without_place : archetype::control_channel {
    void ranks() const = delete;
};
struct control_channel_without_publish : archetype::control_channel {
    void publish() = delete;
};
/// The channel waits for a text in any case.
struct control_channel_with_bare_text : archetype::control_channel {
    std::string next_published() { return {}; }
};
struct control_channel_without_report : archetype::control_channel {
    void report() = delete;
};
/// The reports don't tell their senders.
struct control_channel_with_anonymous_report : archetype::control_channel {
    std::optional<std::string> next_report() { return {}; }
};
struct control_channel_without_begin_minimum : archetype::control_channel {
    void begin_minimum() = delete;
};
struct control_channel_without_minimum : archetype::control_channel {
    void minimum() = delete;
};
struct control_channel_without_cancel : archetype::control_channel {
    void cancel() = delete;
};

} // namespace optpipe::testing::mutant
