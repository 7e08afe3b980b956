#pragma once

#include "optpipe/core/index.hpp"
#include "optpipe/core/quantity.hpp"
#include "optpipe/pipeline/storage.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace optpipe {

/// The number of lanes that carry a rank's messages.
enum class message_lanes : std::uint8_t {
    separate,      ///< four lanes: one for sends and one for receives in each direction
    per_direction, ///< two lanes, as with two communicators: one for activations, and one for gradients
    single,        ///< one lane, for transports that don't allow several messages at once
};

/// The earliest time at which a receive may start. A receive always waits for its buffer.
enum class receive_issue : std::uint8_t {
    early,    ///< the receive starts at any time, so a message never waits for computations of its receiver
    when_due, ///< the receive starts after the computations planned before the send; for transports whose receives
              ///< occupy multiprocessors
};

/// Whether a buffer may be split into several segments.
enum class part_placement : std::uint8_t {
    exact,      ///< a buffer may be split if the arena would otherwise exceed the plan's peak
    contiguous, ///< buffers are never split, so the arena may exceed the plan's peak; see `cuda::lowering_defaults`
};

/// For a storage option of a stage: how much memory for W the forward already holds.
struct held_for_weight {
    optpipe::stage stage{};
    storage_index storage = 0;
    memory_size kept{};
};

struct lowering_options {
    /// Number of bytes in one unit of the problem's memory; above 0.
    double bytes_per_unit = 1e9;
    /// Alignment of all buffers in bytes, at most 1 MiB. Sizes are rounded up to multiples of the alignment. The
    /// default is the alignment of CUDA's own allocations. Kernels can use vector loads and stores with this alignment.
    std::size_t alignment = 256;
    /// Bytes of an activation or gradient, for an edge of size 1 and a message factor of 1. All consumers get the same
    /// activation, so a stage's largest edge counts. An edge that holds memory sends the held size, whatever
    /// `message_bytes` is. If 0, the training engine moves activations and gradients, and the program only gives the
    /// order. If 0, each message has 0 bytes, and its labels name the tensor. If 0, no memory is reserved for messages,
    /// and tasks have no input and output buffers. See examples 13 (a loop of your own) and 16 (a transport of your
    /// own).
    std::size_t message_bytes = 0;
    /// Message sizes of the stages, if they differ. Entry s is the size of the value that stage s hands on, and of the
    /// value's gradient. Missing entries default to `message_bytes`.
    std::vector<std::size_t> boundary_bytes{};
    /// Size in bytes of a partial result, for a microbatch with a factor of 1 on messages. F computes a partial result
    /// per stage of a group, for all backwards of the group.
    std::size_t partial_bytes = 0;
    message_lanes lanes = message_lanes::separate;
    receive_issue receives = receive_issue::early;
    part_placement placement = part_placement::exact;
    /// Size in bytes of the parts of host memory, a multiple of `alignment`. If 0, host memory is one block. Each stash
    /// on the host lies in one part, because copies can't cross the end of a part. Unused space at the ends of parts is
    /// added to the plan's peak.
    std::size_t host_part = 0;
    /// Whether each stage makes an optimizer step at the end.
    bool update = false;
    /// Whether each stage's gradients are summed over the pipelines of one model. The reduction runs on a separate
    /// lane, between the last weight gradient and the update. All pipelines that reduce together must run the same
    /// programs.
    bool reduce = false;
    /// Whether the schedule consists of forwards only (`forward_schedule`), for evaluation and inference. Excludes
    /// `update` and `reduce`.
    bool forward_only = false;
    /// Entries for storage options whose RECOMPUTE restores memory that W needs. An entry states how much of the memory
    /// for W the forward already holds. With an entry, F and RECOMPUTE write the data for W to its final place. If an
    /// option has no entry, the largest possible amount is assumed. Impossible values are clamped.
    std::vector<held_for_weight> kept{};

    /// `bytes` rounded up to a multiple of the alignment.
    [[nodiscard]] constexpr std::size_t aligned(std::size_t bytes) const {
        return (bytes + alignment - 1) / alignment * alignment;
    }
    /// `size` in bytes, rounded and aligned.
    [[nodiscard]] std::size_t rounded_bytes(memory_size size) const {
        return aligned(static_cast<std::size_t>(std::llround(std::max(0.0, size.value() * bytes_per_unit))));
    }
    /// `bytes` times a factor, rounded up and aligned.
    [[nodiscard]] std::size_t scaled(std::size_t bytes, double factor) const {
        return aligned(factor == 1.0 ? bytes
                                     : static_cast<std::size_t>(std::ceil(static_cast<double>(bytes) * factor)));
    }
    /// Bytes of the value that stage `boundary` hands on, before alignment.
    [[nodiscard]] constexpr std::size_t given_bytes_of_message(std::size_t boundary) const {
        return boundary < boundary_bytes.size() ? boundary_bytes[boundary] : message_bytes;
    }
    /// Bytes of the value that stage `boundary` hands on, after alignment.
    [[nodiscard]] constexpr std::size_t bytes_of_message(std::size_t boundary) const {
        return aligned(given_bytes_of_message(boundary));
    }
};

} // namespace optpipe
