#pragma once

#include "optpipe/core/bounded_text.hpp"
#include "optpipe/core/container.hpp"
#include "optpipe/core/quantity.hpp"
#include "optpipe/pipeline/costs.hpp"

#include <cstddef>
#include <cstdint>
#include <optional>

namespace optpipe {

/// The index of a storage option in the stage's list. Each stash uses one option.
using storage_index = std::uint8_t;

/// The largest number of storage options per stage.
inline constexpr std::size_t most_storage_options = 32;

/// The largest number of bytes in the name of a storage option.
inline constexpr std::size_t longest_storage_name = 32;

/// One way to store a stash between forward and backward (io/README.md). An option may combine keeping, offloading and
/// recomputing. At most one of `recompute` and `backward_extra` is above 0.
struct storage_option {
    /// The name is unique within the stage.
    bounded_text<longest_storage_name> name{};
    /// Device memory of the stash after the forward. The memory is at most the stage's activation, and less only if
    /// something is recomputed. `held` must be set; `keep_stash` sets it to the activation. In files, the default is
    /// the activation.
    memory_size held = memory_size::unlimited();
    /// Duration of the operation that restores the whole activation before the backward. 0 if nothing is recomputed
    /// ahead of the backward.
    duration recompute{};
    /// Extra duration of I or B if the stash is recomputed piece by piece inside the backward. The backward holds at
    /// most the larger of `held` and the weight stash.
    duration backward_extra{};
    /// Size of the memory that is moved to the host; at most `held`.
    memory_size transfer_size{};
    /// Transfer times; empty if nothing is offloaded.
    std::optional<transfer_times> transfer{};

    [[nodiscard]] constexpr bool offloads() const { return transfer.has_value(); }
    [[nodiscard]] constexpr bool recomputes() const { return recompute > duration{}; }
    /// Duration of recomputation, in an operation of its own or inside the backward.
    [[nodiscard]] constexpr duration extra_work() const { return recompute + backward_extra; }
    /// `extra_work()` plus the durations of the transfers.
    [[nodiscard]] constexpr duration extra_time() const {
        return extra_work() + (transfer ? transfer->offload + transfer->reload : duration{});
    }
    /// Memory of the stash on the device when the backward starts.
    [[nodiscard]] constexpr memory_size restored(const stage_costs& costs) const {
        return recomputes() ? costs.activation : held;
    }
    /// Memory that stays on the device from the forward until the stash comes back.
    [[nodiscard]] constexpr memory_size left_on_device() const { return held - transfer_size; }
    friend constexpr bool operator==(const storage_option&, const storage_option&) = default;
};

/// Keeps the whole stash on the device.
[[nodiscard]] constexpr storage_option keep_stash(const stage_costs& costs) {
    return {"keep", costs.activation, {}, {}, {}, {}};
}
/// Moves the whole stash to the host and back. Contract: the stage can be offloaded.
[[nodiscard]] constexpr storage_option offload_stash(const stage_costs& costs) {
    OPTPIPE_EXPECT(costs.can_offload(), "this stage can't be offloaded");
    return {"offload", costs.activation, {}, {}, costs.activation, costs.transfer};
}

/// Whether the option keeps the whole stash on the device.
[[nodiscard]] constexpr bool keeps_all(const storage_option& option) {
    return !option.offloads() && option.extra_work() <= duration{};
}
/// Whether the option moves the whole stash to the host and recomputes nothing.
[[nodiscard]] constexpr bool offloads_all(const storage_option& option) {
    return option.offloads() && option.transfer_size == option.held && option.extra_work() <= duration{};
}

/// The storage options of a stage.
template <bool IsStatic>
using storage_list = bounded_vector<storage_option, IsStatic ? most_storage_options : extents::dynamic>;

/// The options that these costs describe. Costs describe the option `keep`. Costs with transfer times also describe the
/// option `offload`.
template <bool IsStatic = false>
[[nodiscard]] constexpr storage_list<IsStatic> described_storage(const stage_costs& costs) {
    storage_list<IsStatic> options;
    options.push_back(keep_stash(costs));
    if (costs.can_offload()) options.push_back(offload_stash(costs));
    return options;
}

/// Whether `options` is exactly the list that the costs describe, with or without transfer times.
template <class List> [[nodiscard]] constexpr bool is_described_by_costs(stage_costs costs, const List& options) {
    if (options.size() == 0 || options.size() > 2 || !(options[0] == keep_stash(costs))) return false;
    if (options.size() == 1) return true;
    costs.transfer = options[1].transfer;
    return costs.can_offload() && options[1] == offload_stash(costs);
}

} // namespace optpipe
