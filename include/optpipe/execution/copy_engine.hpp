#pragma once

#include "optpipe/execution/lane.hpp"
#include "optpipe/program/ir.hpp"

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>

namespace optpipe::execution {

/// A copy of all bytes of `from` to `to`. Both have the same size.
struct copy_piece {
    std::span<std::byte> to;
    std::span<const std::byte> from;
};
using copy_pieces = std::span<const copy_piece>;

enum class copy_direction : std::uint8_t {
    out, ///< copies from the device to the host
    in,  ///< copies from the host to the device
};

template <class C, class L>
concept has_copy = requires(C& engine, L& on, copy_direction way, const task_label& label, copy_pieces pieces) {
    { engine.copy(on, way, label, pieces) } -> std::same_as<void>;
};

/// Copies between a device and its host.
///
/// Semantics: `copy` appends copies between two arenas to the lane's commands. All copies of a call end before the next
/// command of the lane starts. `pieces` and their memory must stay valid until the step ends. If the training engine
/// owns stashes (`buffer_owners`), `pieces` is empty. An engine that owns stashes needs its own `copy_engine`.
template <class C, class L> concept copy_engine = lane<L> && has_copy<C, L>;

/// Checks the type at compile time, for lanes of type `L`. An error names the requirement that isn't met.
template <class C, class L> consteval bool check_copy_engine() {
    static_assert(check_lane<L>());
    static_assert(has_copy<C, L>,
                  "copy engine: needs `void copy(lane&, copy_direction, const task_label&, copy_pieces)`");
    return copy_engine<C, L>;
}

} // namespace optpipe::execution
