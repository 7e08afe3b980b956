#pragma once

#include "optpipe/core/quantity.hpp"

#include <optional>

namespace optpipe {

/// Durations of moving a whole stash to the host, and back.
struct transfer_times {
    duration offload{};
    duration reload{};
    friend constexpr bool operator==(const transfer_times&, const transfer_times&) = default;
};

/// The gradients that a stage computes.
enum class gradient_kind {
    full,  ///< gradients of inputs and weights: one I and one W, or one B
    input, ///< gradients of inputs only, because the weights are frozen: one I
    none,  ///< no gradients: neither this stage nor an earlier one is trained
};

/// The costs of one microbatch on one stage.
struct stage_costs {
    duration forward{};
    duration backward_input{};
    duration backward_weight{};
    /// Device memory of the stash, from the start of the forward to the end of the input gradient.
    memory_size activation{};
    /// Memory held from the end of the input gradient I to the end of the weight gradient W. The memory is usually a
    /// part of the activation. The default is half of the activation, as in problem files. Changing `activation` later
    /// doesn't change `weight_stash`.
    memory_size weight_stash = 0.5 * activation;
    /// Transfer times from which `set_stage` makes the storage option `offload`. In a problem, `transfer` is empty: the
    /// options in `storage[s]` have the times.
    std::optional<transfer_times> transfer{};
    /// If the stage computes no weight gradients, `backward_weight` and `weight_stash` are 0. If the stage computes no
    /// gradients at all, `backward_input` is also 0.
    gradient_kind gradients = gradient_kind::full;
    /// Device memory for attention keys and values that a slice of a sequence keeps for later slices. The memory isn't
    /// included in `activation`.
    memory_size kv{};

    [[nodiscard]] constexpr duration backward() const { return backward_input + backward_weight; }
    [[nodiscard]] constexpr duration work() const { return forward + backward(); }
    [[nodiscard]] constexpr bool can_offload() const { return transfer.has_value(); }
    friend constexpr bool operator==(const stage_costs&, const stage_costs&) = default;
};

} // namespace optpipe
