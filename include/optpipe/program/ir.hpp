#pragma once

#include "optpipe/core/index.hpp"
#include "optpipe/program/step_shape.hpp"
#include "optpipe/schedule/operation.hpp"
#include "optpipe/schedule/pair.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

namespace optpipe {

/// The purpose of a lane. A program has at most one lane of each kind. The kinds that a program uses depend on the
/// problem's copy engines and on `message_lanes`.
enum class lane_kind : std::uint8_t {
    compute,
    copy,     ///< transfers to the host and back, on a rank with one copy engine
    copy_out, ///< transfers to the host
    copy_in,  ///< transfers from the host
    send_forward,
    receive_forward,
    send_backward,
    receive_backward,
    forward,       ///< both ends of all activations
    backward,      ///< both ends of all gradients
    communication, ///< all messages
    reduce,        ///< sums of gradients over the pipelines that train the same model
};

[[nodiscard]] constexpr std::string_view spelling(lane_kind kind) {
    switch (kind) {
    case lane_kind::compute: return "compute";
    case lane_kind::copy: return "copy";
    case lane_kind::copy_out: return "copy out";
    case lane_kind::copy_in: return "copy in";
    case lane_kind::send_forward: return "send forward";
    case lane_kind::receive_forward: return "receive forward";
    case lane_kind::send_backward: return "send backward";
    case lane_kind::receive_backward: return "receive backward";
    case lane_kind::forward: return "forward";
    case lane_kind::backward: return "backward";
    case lane_kind::communication: return "communication";
    case lane_kind::reduce: return "reduce";
    }
    return "?";
}

/// Whether the lane carries messages between ranks of the pipeline.
[[nodiscard]] constexpr bool carries_messages(lane_kind kind) {
    switch (kind) {
    case lane_kind::send_forward:
    case lane_kind::receive_forward:
    case lane_kind::send_backward:
    case lane_kind::receive_backward:
    case lane_kind::forward:
    case lane_kind::backward:
    case lane_kind::communication: return true;
    case lane_kind::compute:
    case lane_kind::copy:
    case lane_kind::copy_out:
    case lane_kind::copy_in:
    case lane_kind::reduce: return false;
    }
    return false;
}

/// The direction of a message. The n-th send from one rank to another in a direction matches the n-th receive.
enum class message_direction : std::uint8_t {
    forward,  ///< activations, which go to later stages, and partial results
    backward, ///< gradients, which go to earlier stages
};

[[nodiscard]] constexpr message_direction direction_of(const operation& produced_by) {
    return produced_by.kind == operation_kind::forward ? message_direction::forward : message_direction::backward;
}

using buffer_id = index<struct buffer_tag>;
using marker_id = index<struct marker_tag>;
inline constexpr buffer_id no_buffer{std::numeric_limits<std::uint32_t>::max()};
inline constexpr marker_id no_marker{std::numeric_limits<std::uint32_t>::max()};

/// One of a rank's three blocks of memory. Each block is allocated once, before the first step.
enum class memory_arena : std::uint8_t {
    device,  ///< stashes, attention keys and values, and data of edges; as large as the plan's peak
    host,    ///< offloaded stashes
    message, ///< on the device: data to be sent, received, or passed between stages of the rank
};

struct memory_segment {
    std::size_t offset = 0;
    std::size_t bytes = 0;
    friend constexpr bool operator==(const memory_segment&, const memory_segment&) = default;
};

/// Memory in use from the start of one instruction to the end of another. A reload puts the offloaded part of a stash
/// into new buffers.
struct program_buffer {
    memory_arena arena = memory_arena::device;
    std::size_t bytes = 0;
    /// Position of the first segment in `rank_program::segments`. The sizes of the segments add up to `bytes`. If
    /// possible, there is only one segment.
    std::uint32_t first_segment = 0;
    std::uint32_t segments = 0;
    /// Positions of the first and the last use in `rank_program::instructions`.
    std::uint32_t first_use = 0;
    std::uint32_t last_use = 0;
};

/// The purposes for which an instruction has buffers of its stage and microbatch. A stash consists of the memory from F
/// and the memory that RECOMPUTE restores. The part of a stash that W doesn't need is freed when I ends. A partial
/// offload first takes the memory that W needs.
enum class buffer_role : std::uint8_t {
    kept,           ///< memory held by F and needed by W; in a partial offload, only the offloaded part
    freed,          ///< memory held by F and unused after I; in a partial offload, only the offloaded part
    resident_kept,  ///< in a partial offload: memory held by F, needed by W, and left on the device
    resident_freed, ///< in a partial offload: memory held by F, unused after I, and left on the device
    restored_kept,  ///< memory restored by RECOMPUTE and needed by W
    restored_freed, ///< memory restored by RECOMPUTE and unused after I
    added,          ///< memory that I takes for W, if `weight_stash` exceeds the kept memory
    host,           ///< host copy of the offloaded memory: first the kept part, then the freed part
};
inline constexpr std::size_t buffer_roles = 8;

enum class instruction_kind : std::uint8_t {
    compute,  ///< F, I, W, B, RECOMPUTE or a pair
    copy,     ///< OFFLOAD or RELOAD
    exchange, ///< sends and receives that progress together
    update,   ///< the optimizer step of stage `op.stage`
    reduce,   ///< sums the gradients of stage `op.stage` over the pipelines of one model
};

/// The buffers of an operation that has none.
inline constexpr std::array<buffer_id, buffer_roles> no_buffers = [] {
    std::array<buffer_id, buffer_roles> none{};
    none.fill(no_buffer);
    return none;
}();

/// The kind of a value that passes between operations of different stages or microbatches.
enum class value_kind : std::uint8_t {
    boundary,             ///< a value along an edge: an activation, or its gradient
    partial,              ///< a partial result of F on one stage of a group
    keys_values,          ///< attention keys and values for later slices of the sequence
    keys_values_gradient, ///< gradients of attention keys and values, for the backwards of earlier slices
};

enum class link_way : std::uint8_t { input, output };

/// A buffer that an instruction shares with operations of another stage or microbatch.
struct buffer_link {
    link_way way = link_way::input;
    value_kind value = value_kind::boundary;
    /// The stage at the other end of the link. Several links may refer to the same buffer.
    stage other{};
    /// The slice of attention keys and values, or of their gradients; otherwise unused.
    optpipe::microbatch slice{};
    buffer_id buffer = no_buffer;
};

/// Stands for the next stage (for an activation) or the previous stage (for a gradient).
inline constexpr stage adjacent_stage{std::numeric_limits<std::uint32_t>::max()};

/// One end of a message. A message is named after the operation that produces its value.
struct exchange_part {
    enum class side_kind : std::uint8_t { send, receive };
    side_kind side = side_kind::send;
    optpipe::rank peer{};
    operation message{};
    buffer_id buffer = no_buffer;
    value_kind value = value_kind::boundary;
    /// The first stage that uses the message on the receiving rank, or `adjacent_stage`.
    stage consumer = adjacent_stage;
};

/// One operation of an instruction, with its buffers.
struct operation_buffers {
    operation op{};
    std::array<buffer_id, buffer_roles> buffers = no_buffers;
    /// The position of the operation's first link in `rank_program::links`, and the number of its links. Links to
    /// inputs come first.
    std::uint32_t first_link = 0;
    std::uint32_t links = 0;

    [[nodiscard]] constexpr buffer_id buffer(buffer_role role) const { return buffers[static_cast<std::size_t>(role)]; }
    constexpr void set(buffer_role role, buffer_id id) { buffers[static_cast<std::size_t>(role)] = id; }
};

/// The backward of a pair, and the pair's working memory, if any (`overlap::memory`).
struct paired_backward {
    operation_buffers backward{};
    buffer_id memory = no_buffer;
};

inline constexpr std::uint32_t no_pair = std::numeric_limits<std::uint32_t>::max();

/// One instruction of a lane. An instruction starts once all markers that it waits for are recorded.
struct instruction {
    instruction_kind kind = instruction_kind::compute;
    /// Position of the lane in `rank_program::lanes`.
    std::uint8_t lane = 0;
    /// The operation, or the forward of a pair. Unused for an exchange.
    operation op{};
    std::array<buffer_id, buffer_roles> buffers = no_buffers;
    /// The position of the instruction's first link in `rank_program::links`, and the number of its links. Links to
    /// inputs come first.
    std::uint32_t first_link = 0;
    std::uint32_t links = 0;
    /// For an exchange, its first part in `rank_program::parts`, and its number of parts.
    std::uint32_t first_part = 0;
    std::uint32_t parts = 0;
    /// The position of the instruction's first wait in `rank_program::waits`, and the number of its waits.
    std::uint32_t first_wait = 0;
    std::uint32_t waits = 0;
    /// The marker recorded after the instruction, if any instruction waits for it.
    marker_id records = no_marker;
    /// For a pair, the position of its backward in `rank_program::pairs`. For a pair, the instruction's `op`, buffers
    /// and links are those of the forward. The forward and the backward of a pair share the instruction's waits and its
    /// marker.
    std::uint32_t pair = no_pair;

    [[nodiscard]] constexpr bool is_pair() const { return pair != no_pair; }
    [[nodiscard]] constexpr buffer_id buffer(buffer_role role) const { return buffers[static_cast<std::size_t>(role)]; }
    constexpr void set(buffer_role role, buffer_id id) { buffers[static_cast<std::size_t>(role)] = id; }
};

/// The program of one rank for one step.
///
/// One thread issues the instructions in order, each to its lane. A lane runs its instructions in order. Lanes run at
/// the same time, and wait for each other only through markers. Every marker is recorded once per step. A marker's
/// recording instruction is issued before all waits for the marker. Sends are rendezvous: an exchange ends only after
/// all matching exchanges have started.
struct rank_program {
    optpipe::rank self{};
    std::size_t ranks = 0;
    std::size_t stages = 0;
    std::size_t microbatches = 0;
    step_shape shape{};
    std::vector<lane_kind> lanes;
    std::vector<instruction> instructions;
    std::vector<paired_backward> pairs;
    std::vector<buffer_link> links;
    std::vector<exchange_part> parts;
    std::vector<marker_id> waits;
    std::size_t markers = 0;
    std::vector<program_buffer> buffers;
    std::vector<memory_segment> segments;
    std::size_t device_bytes = 0;
    std::size_t host_bytes = 0;
    std::size_t message_bytes = 0;
    /// The alignment of every segment's offset, in bytes.
    std::size_t alignment = 1;
    /// Host memory is divided into parts of this size in bytes. No segment on the host crosses from one part into the
    /// next. 0 if host memory isn't divided.
    std::size_t host_part = 0;
    /// Whether the program consists of forwards only, for evaluation and inference. A program of forwards only has no
    /// stashes, backwards, reductions or updates.
    bool forward_only = false;

    [[nodiscard]] std::size_t bytes_of(memory_arena arena) const {
        switch (arena) {
        case memory_arena::device: return device_bytes;
        case memory_arena::host: return host_bytes;
        case memory_arena::message: return message_bytes;
        }
        return 0;
    }
};

/// Calls `visit(operation_buffers)` for the operation of an instruction that isn't an exchange. If the instruction is a
/// pair, calls `visit` for the forward, and then for the backward.
template <class Visit> void for_each_operation_of(const rank_program& p, const instruction& i, const Visit& visit) {
    visit(operation_buffers{i.op, i.buffers, i.first_link, i.links});
    if (i.is_pair()) visit(p.pairs[i.pair].backward);
}

/// The name of a task in profilers, event times and errors. The text of a computation or copy is the text of its
/// operation or pair.
struct task_label {
    enum class task_kind : std::uint8_t { operation, update, reduce, send, receive, pair };
    task_kind kind = task_kind::operation;
    /// The operation, or the forward of a pair.
    operation op{};
    /// For a message, the rank at its other end.
    rank peer{};
    /// For a message: its kind of value, and the stage that the value is for (`exchange_part`).
    value_kind value = value_kind::boundary;
    stage consumer = adjacent_stage;
    /// The backward of a pair; unused if the task isn't a pair.
    operation backward{};
    friend constexpr bool operator==(const task_label&, const task_label&) = default;
};

/// Whether the labels of both ends of a message describe the same content.
[[nodiscard]] constexpr bool is_same_content(const task_label& a, const task_label& b) {
    return a.op == b.op && a.value == b.value && a.consumer == b.consumer;
}

/// Describes a message's content: the producing operation, and the receiving stage.
[[nodiscard]] inline std::string content_of(const task_label& message) {
    auto text = (message.value == value_kind::partial ? "the partial result of " : "") + to_string(message.op);
    if (message.consumer != adjacent_stage) text += " for stage " + std::to_string(message.consumer.value());
    return text;
}

[[nodiscard]] inline std::string to_string(const task_label& label) {
    switch (label.kind) {
    case task_label::task_kind::operation: return to_string(label.op);
    case task_label::task_kind::update: return "update of stage " + std::to_string(label.op.stage.value());
    case task_label::task_kind::reduce: return "reduction of stage " + std::to_string(label.op.stage.value());
    case task_label::task_kind::send:
        return "send of " + content_of(label) + " to rank " + std::to_string(label.peer.value());
    case task_label::task_kind::receive:
        return "receive of " + content_of(label) + " from rank " + std::to_string(label.peer.value());
    case task_label::task_kind::pair: return to_string(operation_pair{label.op, label.backward});
    }
    return "?";
}

[[nodiscard]] constexpr task_label label_of(const exchange_part& part) {
    const bool sends = part.side == exchange_part::side_kind::send;
    return {sends ? task_label::task_kind::send : task_label::task_kind::receive, part.message, part.peer, part.value,
            part.consumer};
}
/// The label of an instruction. An exchange is named after its first part.
[[nodiscard]] inline task_label label_of(const rank_program& p, const instruction& i) {
    if (i.is_pair()) return {.kind = task_label::task_kind::pair, .op = i.op, .backward = p.pairs[i.pair].backward.op};
    switch (i.kind) {
    case instruction_kind::compute:
    case instruction_kind::copy: return {task_label::task_kind::operation, i.op, {}};
    case instruction_kind::update: return {task_label::task_kind::update, i.op, {}};
    case instruction_kind::reduce: return {task_label::task_kind::reduce, i.op, {}};
    case instruction_kind::exchange: return i.parts > 0 ? label_of(p.parts[i.first_part]) : task_label{};
    }
    return {};
}

} // namespace optpipe
