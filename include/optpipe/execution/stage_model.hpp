#pragma once

#include "optpipe/core/error.hpp"
#include "optpipe/core/index.hpp"
#include "optpipe/execution/lane.hpp"
#include "optpipe/pipeline/storage.hpp"
#include "optpipe/program/ir.hpp"

#include <concepts>
#include <cstddef>
#include <span>

namespace optpipe::execution {

/// A part of a stash: its pieces, one after the other. One piece wherever that is possible, none if it has no bytes.
/// With `part_placement::contiguous` always one, but for a part some of which is offloaded: first what is, then the
/// rest.
using stash_part = std::span<const std::span<std::byte>>;

/// The only piece of a part; empty if it has no bytes. Throws if there are several.
[[nodiscard]] constexpr std::span<std::byte> contiguous(stash_part part) {
    if (part.size() > 1) throw error{"a part of a stash lies in several pieces: lower with part_placement::contiguous"};
    return part.empty() ? std::span<std::byte>{} : part.front();
}

// A stash is what the forward holds (`kept`, `freed`), what a recomputation restores of it (`restored_kept`,
// `restored_freed`) and what the input gradient adds (`added`). The weight gradient needs `kept`, `restored_kept` and
// `added`; `freed` and `restored_freed` are gone by then. `kept` is as much of what is held as the weight gradient
// may have, min(held, weight_stash), or what `lowering_options::kept` says.

/// What a forward works on. The first stage has no input, the last no output.
struct forward_task {
    optpipe::stage stage{};
    optpipe::microbatch microbatch{};
    std::span<const std::byte> input{};
    std::span<std::byte> output{};
    stash_part kept{};
    stash_part freed{};
    /// How the stash is stored, in all tasks of this stage and microbatch: a position in the problem's list of the
    /// stage. 0 without one.
    storage_index storage = 0;
};

/// What a recomputation works on, which comes at any time between the forward, or the reload, and the backward.
struct recompute_task {
    optpipe::stage stage{};
    optpipe::microbatch microbatch{};
    /// As the forward left it.
    stash_part kept{};
    stash_part freed{};
    /// Room for the rest of the activation; the backward gets all four as they are left here.
    stash_part restored_kept{};
    stash_part restored_freed{};
    storage_index storage = 0;
};

/// What the input gradient works on. The last stage has no input, the first no output.
struct backward_task {
    optpipe::stage stage{};
    optpipe::microbatch microbatch{};
    /// The gradient at the stage's output, and at its input.
    std::span<const std::byte> input{};
    std::span<std::byte> output{};
    stash_part kept{};
    stash_part freed{};
    /// Room for more that the weight gradient needs, where weight_stash is above what there is. None in a full
    /// backward: a model that writes it gives `backward` too (`has_backward`), or its problem has no full backwards.
    stash_part added{};
    /// None where nothing was recomputed ahead. Then an option with `backward_extra` recomputes here.
    stash_part restored_kept{};
    stash_part restored_freed{};
    storage_index storage = 0;
    /// In a full backward: as in a weight task.
    bool is_last = false;
};

struct weight_task {
    optpipe::stage stage{};
    optpipe::microbatch microbatch{};
    stash_part kept{};
    stash_part added{};
    stash_part restored_kept{};
    storage_index storage = 0;
    /// Whether the gradients of the stage's parameters are complete for this step once this is done.
    bool is_last = false;
};

template <class M, class L> concept has_forward = requires(M& model, L& on, const forward_task& task) {
    { model.forward(on, task) } -> std::same_as<void>;
};
template <class M, class L> concept has_backward_input = requires(M& model, L& on, const backward_task& task) {
    { model.backward_input(on, task) } -> std::same_as<void>;
};
template <class M, class L> concept has_backward_weight = requires(M& model, L& on, const weight_task& task) {
    { model.backward_weight(on, task) } -> std::same_as<void>;
};

/// The pieces of the user's model that are on one rank.
///
/// Semantics: each is called from `launch` of the compute lane, in the order of the schedule, one at a time. `forward`
/// reads the input, writes the output and all of the stash that it will need: `freed` is there until the input gradient
/// is done, `kept` until the weight gradient is. In between they may have been to the host and back, to another place.
/// `backward_input` reads the gradient at the output and writes the one at the input; what `backward_weight` needs of
/// it goes into `kept`, `restored_kept` and `added`. `backward_weight` adds to the gradients of the parameters. On a
/// device they only put work into the lane; what they get stays where it is until that is over. An exception ends the
/// step on all ranks.
template <class M, class L>
concept stage_model = lane<L> && has_forward<M, L> && has_backward_input<M, L> && has_backward_weight<M, L>;

/// A model that does both halves of a backward better at once; else B is `backward_input`, then `backward_weight`, and
/// where a weight stash is larger than the activation its problem says `full_backward = false`.
template <class M, class L> concept has_backward = requires(M& model, L& on, const backward_task& task) {
    { model.backward(on, task) } -> std::same_as<void>;
};
/// A model that is trained by several pipelines at once: `reduce` adds up their gradients of a stage, or averages them.
/// It is called from `launch` of a lane of its own, once all weight gradients of the stage are done and before its
/// update; meanwhile the compute lane goes on with other stages. The same stages of all pipelines reduce in the same
/// order. Without one, a program that has reductions is refused when it is loaded.
template <class M, class L> concept has_reduce = requires(M& model, L& on, stage which) {
    { model.reduce(on, which) } -> std::same_as<void>;
};
/// A model with an optimizer; without one, a program that has updates is refused when it is loaded.
template <class M, class L> concept has_update = requires(M& model, L& on, stage which) {
    { model.update(on, which) } -> std::same_as<void>;
};

/// A model whose forward may hold less than the backward needs: `recompute` restores the rest, ahead of
/// `backward_input` or `backward`. Which microbatches of which stages it is called for is part of the schedule; a
/// program with a RECOMPUTE is refused for a model without it.
template <class M, class L> concept has_recompute = requires(M& model, L& on, const recompute_task& task) {
    { model.recompute(on, task) } -> std::same_as<void>;
};

/// A model whose engine owns the buffers of messages (`buffer_owners`), for transports that need addresses: where what
/// the label names is sent from, or received into. Called when the exchange is issued; what it gives stays until that
/// is over. Without it, the transport gets no bytes and goes by the labels.
template <class M> concept has_message = requires(M& model, const task_label& what) {
    { model.message(what) } -> std::same_as<std::span<std::byte>>;
};

/// A model for evaluation or inference says `static constexpr bool forward_only = true;`, and needs `forward` alone. A
/// program with anything else is refused for it.
template <class M> concept forward_only_model = requires { requires static_cast<bool>(M::forward_only); };

/// The sentence that a type lacks to be a stage model for lanes of type `L`.
template <class M, class L> consteval bool check_stage_model() {
    static_assert(check_lane<L>());
    static_assert(has_forward<M, L>, "stage model: needs `void forward(lane&, const forward_task&)`");
    if constexpr (forward_only_model<M>) {
        return has_forward<M, L>;
    } else {
        static_assert(has_backward_input<M, L>,
                      "stage model: needs `void backward_input(lane&, const backward_task&)`");
        static_assert(has_backward_weight<M, L>,
                      "stage model: needs `void backward_weight(lane&, const weight_task&)`");
        return stage_model<M, L>;
    }
}

} // namespace optpipe::execution
