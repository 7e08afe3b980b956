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

/// A stage model whose optimizer can undo a step.
///
/// Semantics: `gradient_squares` sums the squares of the stage's gradients, in a fixed order. The sum isn't finite if a
/// gradient overflowed. `update` makes the optimizer step according to a decision. `update` keeps the gradients. Other
/// work at the end of a step, such as work on the loss, also belongs to `update`. `revise` undoes the optimizer step,
/// and makes it again according to a new decision. After `revise`, parameters and moments are bitwise those of an
/// `update` with the new decision. `revise` changes nothing else, because forwards of the next step may have run.
/// `settle` makes the update final. After `settle`, the gradients may be cleared. `abandon` discards the forwards since
/// the last update, and their losses. After `abandon`, the same microbatches are run again. All functions of this
/// concept are called by work on the compute lane. Results and decisions are on the host, so `gradient_squares` waits
/// for a device's lane.
template <class M, class L>
concept reversible_model = stage_model<M, L> && has_gradient_squares<M, L> && has_decided_update<M, L> &&
    has_revise<M, L> && has_settle<M, L> && has_abandon<M, L>;

/// Checks the type at compile time, for lanes of type `L`. An error names the requirement that isn't met.
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
