#pragma once

#include "optpipe/core/bounded_text.hpp"
#include "optpipe/core/container.hpp"
#include "optpipe/core/quantity.hpp"
#include "optpipe/pipeline/costs.hpp"

#include <cstddef>
#include <cstdint>
#include <optional>

namespace optpipe {

/// Which storage option a (stage, microbatch) uses: its position in the list of its stage.
using storage_index = std::uint8_t;

/// Storage options that a stage may have at most.
inline constexpr std::size_t most_storage_options = 32;

/// Bytes of the name of a storage option, at most.
inline constexpr std::size_t longest_storage_name = 32;

/// How a stash may be stored between its forward and its backward (io/README.md): kept, offloaded, recomputed, or parts
/// of it each. `recompute` and `backward_extra` exclude each other.
struct storage_option {
    /// Unique within its stage.
    bounded_text<longest_storage_name> name{};
    /// Device memory that the forward leaves: at most the stage's activation, and less only where something is
    /// recomputed. Has to be given: `keep_stash` makes an option that leaves all of it, as a file's does by default.
    memory_size held = memory_size::unlimited();
    /// Duration of an operation of its own, before the backward, that restores the whole activation. 0: there is none.
    duration recompute{};
    /// What I, or B, takes longer: recomputed piece by piece inside the backward, which holds no more than `held`, or,
    /// in I, than the weight stash if that is larger.
    duration backward_extra{};
    /// What a transfer moves: at most `held`.
    memory_size transfer_size{};
    /// Empty: nothing is offloaded.
    std::optional<transfer_times> transfer{};

    [[nodiscard]] constexpr bool offloads() const { return transfer.has_value(); }
    [[nodiscard]] constexpr bool recomputes() const { return recompute > duration{}; }
    /// Work that a (stage, microbatch) takes more than with its stash kept.
    [[nodiscard]] constexpr duration extra_work() const { return recompute + backward_extra; }
    /// The same with its transfers.
    [[nodiscard]] constexpr duration extra_time() const {
        return extra_work() + (transfer ? transfer->offload + transfer->reload : duration{});
    }
    /// What is on the device when the backward starts.
    [[nodiscard]] constexpr memory_size restored(const stage_costs& costs) const {
        return recomputes() ? costs.activation : held;
    }
    /// What stays on the device at least, from the forward until the stash comes back.
    [[nodiscard]] constexpr memory_size left_on_device() const { return held - transfer_size; }
    friend constexpr bool operator==(const storage_option&, const storage_option&) = default;
};

/// The whole stash stays on the device.
[[nodiscard]] constexpr storage_option keep_stash(const stage_costs& costs) {
    return {"keep", costs.activation, {}, {}, {}, {}};
}
/// The whole stash goes to the host and back. Contract: the stage can be offloaded.
[[nodiscard]] constexpr storage_option offload_stash(const stage_costs& costs) {
    OPTPIPE_EXPECT(costs.can_offload(), "this stage can't be offloaded");
    return {"offload", costs.activation, {}, {}, costs.activation, costs.transfer};
}

/// The storage options of a stage. Empty: `keep`, and `offload` where the stage has transfer times.
template <bool IsStatic>
using storage_list = bounded_vector<storage_option, IsStatic ? most_storage_options : extents::dynamic>;

namespace detail {

/// Gives a stage with these costs a list of options; as plain transfer times where they are no more than `keep` and
/// `offload`, so that both forms are one problem.
template <class List> constexpr void set_storage(stage_costs& costs, List& own, const storage_list<false>& options) {
    own.clear();
    costs.transfer = std::optional<transfer_times>{};
    auto plain = costs;
    if (options.size() == 2) plain.transfer = options[1].transfer;
    const bool is_kept = options.size() > 0 && options[0] == keep_stash(costs);
    if (is_kept && options.size() == 1) return;
    if (is_kept && options.size() == 2 && plain.can_offload() && options[1] == offload_stash(plain)) {
        costs = plain;
        return;
    }
    for (const auto& option : options)
        own.push_back(option);
}

} // namespace detail

} // namespace optpipe
