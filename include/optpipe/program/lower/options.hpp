#pragma once

#include "optpipe/core/index.hpp"
#include "optpipe/core/quantity.hpp"
#include "optpipe/pipeline/storage.hpp"

#include <cstddef>
#include <cstdint>
#include <vector>

namespace optpipe {

/// How many lanes carry a rank's messages.
enum class message_lanes : std::uint8_t {
    separate,      ///< sends and receives of each direction: four. Nothing waits but for its own kind
    per_direction, ///< activations, gradients: two, as with two communicators
    single,        ///< all on one, where several at once aren't safe
};

/// When a receive may begin, beside the buffer that it needs.
enum class receive_issue : std::uint8_t {
    early,    ///< at any time: a message never waits for its receiver's computations
    when_due, ///< when the last computation of its rank is over that, by the plan, ends before the message is sent: for
              ///< transports whose receives take multiprocessors while they wait
};

/// Whether a part of a stash may be split into segments.
enum class part_placement : std::uint8_t {
    exact,      ///< it may, where otherwise more than the plan's peak would be needed
    contiguous, ///< it may not; fragmentation comes on top of the plan's peak. For GPUs, see `cuda::lowering_defaults`
};

/// How much of what the forward holds with a storage option the weight gradient needs too.
struct held_for_weight {
    optpipe::stage stage{};
    storage_index storage = 0;
    memory_size kept{};
};

struct lowering_options {
    /// What one unit of the problem's memory is.
    double bytes_per_unit = 1e9;
    /// All buffers begin at multiples of it, and sizes are rounded up to such: at most 1 MiB. What CUDA gives its own
    /// allocations lets kernels read and write vectors.
    std::size_t alignment = 256;
    /// Of an activation between two stages, and of a gradient. 0: messages only say that something is there, for models
    /// that hand their tensors over themselves; tasks then have no input and no output.
    std::size_t message_bytes = 0;
    /// The same, where boundaries between stages differ: that of stages s and s + 1 has the s-th. For what isn't in it,
    /// `message_bytes` counts.
    std::vector<std::size_t> boundary_bytes{};
    message_lanes lanes = message_lanes::separate;
    receive_issue receives = receive_issue::early;
    part_placement placement = part_placement::exact;
    /// Where host memory consists of parts, none of which a copy may reach out of: the size of each, in bytes, a
    /// multiple of `alignment`. Each stash on the host then lies in one piece in one of them; what that leaves free at
    /// the ends of parts comes on top of the plan's peak. 0: it is all of one piece.
    std::size_t host_part = 0;
    /// Whether each stage has an optimizer's step at the end.
    bool update = false;
    /// Whether the gradients of each stage are reduced over the pipelines that train the same model, on a lane of its
    /// own as soon as the stage's last weight gradient is done; its update waits for that. All those pipelines run the
    /// same programs: so they reduce in the same order, and none waits for another in a cycle.
    bool reduce = false;
    /// The schedule has forwards alone (`forward_schedule`), for evaluation and inference. Not with `update` or
    /// `reduce`.
    bool forward_only = false;
    /// For options with a RECOMPUTE that restores some of what the weight gradient needs: so that each part is made
    /// where it stays. Without an entry, and beyond what is possible: as much as is held.
    std::vector<held_for_weight> kept{};

    /// Rounded up to a multiple of the alignment.
    [[nodiscard]] constexpr std::size_t aligned(std::size_t bytes) const {
        return (bytes + alignment - 1) / alignment * alignment;
    }
    /// What a message between the `boundary`-th stage and the next one takes, aligned.
    [[nodiscard]] constexpr std::size_t bytes_of_message(std::size_t boundary) const {
        return aligned(boundary < boundary_bytes.size() ? boundary_bytes[boundary] : message_bytes);
    }
};

} // namespace optpipe
