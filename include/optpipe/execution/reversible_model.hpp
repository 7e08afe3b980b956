#pragma once

#include "optpipe/core/index.hpp"
#include "optpipe/execution/gradient_state.hpp"
#include "optpipe/execution/stage_model.hpp"

#include <concepts>

namespace optpipe::execution {

template <class M, class L> concept has_gradient_squares = requires(M& model, L& on, stage which) {
    { model.gradient_squares(on, which) } -> std::same_as<double>;
};
template <class M, class L>
concept has_decided_update = requires(M& model, L& on, stage which, const update_decision& by) {
    { model.update(on, which, by) } -> std::same_as<void>;
};
template <class M, class L> concept has_revise = requires(M& model, L& on, stage which, const update_decision& by) {
    { model.revise(on, which, by) } -> std::same_as<void>;
};
template <class M, class L> concept has_settle = requires(M& model, L& on, stage which) {
    { model.settle(on, which) } -> std::same_as<void>;
};
template <class M, class L> concept has_abandon = requires(M& model, L& on, stage which) {
    { model.abandon(on, which) } -> std::same_as<void>;
};

/// A stage model whose optimizer can take a step back.
///
/// Semantics: `gradient_squares` is the sum of the squares of the stage's gradients, in an order of its own that is
/// always the same; not finite if one of them overflowed. `update` makes the optimizer's step under a decision and what
/// else ends a step (its loss, the next data), and keeps the gradients. `revise` takes the optimizer's step back and
/// makes it again under another decision: parameters and moments are then what `update` would have left under that
/// one, bit for bit; nothing else changes, as forwards of the next step may have run. `settle`: the update stands, the
/// gradients may be cleared. `abandon`: the forwards that ran since the last update don't count, nor what they have
/// added to a loss; the next ones are of the same microbatches. All are called from `launch` of the compute lane. What
/// they return, or decide by, is on the host: on a device `gradient_squares` waits for the lane.
template <class M, class L>
concept reversible_model = stage_model<M, L> && has_gradient_squares<M, L> && has_decided_update<M, L> &&
    has_revise<M, L> && has_settle<M, L> && has_abandon<M, L>;

/// The sentence that a type lacks to be a reversible model for lanes of type `L`.
template <class M, class L> consteval bool check_reversible_model() {
    static_assert(check_stage_model<M, L>());
    static_assert(has_gradient_squares<M, L>, "reversible model: needs `double gradient_squares(lane&, stage)`");
    static_assert(has_decided_update<M, L>,
                  "reversible model: needs `void update(lane&, stage, const update_decision&)`");
    static_assert(has_revise<M, L>, "reversible model: needs `void revise(lane&, stage, const update_decision&)`");
    static_assert(has_settle<M, L>, "reversible model: needs `void settle(lane&, stage)`");
    static_assert(has_abandon<M, L>, "reversible model: needs `void abandon(lane&, stage)`");
    return reversible_model<M, L>;
}

} // namespace optpipe::execution
