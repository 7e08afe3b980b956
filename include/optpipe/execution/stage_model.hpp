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

/// A part of a stash, as a list of pieces. An empty part has no pieces. A part that isn't empty has a single piece if
/// possible. With `part_placement::contiguous`, a part that isn't partly offloaded has one piece. The pieces of a
/// partly offloaded part are first the offloaded bytes, and then the resident bytes. With `part_placement::contiguous`,
/// a partly offloaded part has exactly two pieces.
using stash_part = std::span<const std::span<std::byte>>;

/// The only piece of a part. Empty if the part has no bytes. Throws `error` if the part has several pieces.
[[nodiscard]] constexpr std::span<std::byte> contiguous(stash_part part) {
    if (part.size() > 1) throw error{"a part of a stash lies in several pieces: lower with part_placement::contiguous"};
    return part.empty() ? std::span<std::byte>{} : part.front();
}

/// A value that a task gets from another stage.
struct received_value {
    optpipe::stage from{};
    std::span<const std::byte> data{};
};
/// A value that a task hands on to another stage.
struct handed_value {
    optpipe::stage to{};
    std::span<std::byte> data{};
};
/// Memory that belongs to a slice of a sequence.
struct slice_memory {
    optpipe::microbatch slice{};
    std::span<std::byte> data{};
};

// The forward holds the parts `kept` and `freed` of a stash. A recomputation restores `restored_kept` and
// `restored_freed`. The input gradient adds `added`. The weight gradient needs `kept`, `restored_kept` and `added`.
// `freed` and `restored_freed` are freed before the weight gradient. The default size of `kept` is min(held,
// weight_stash) (see `lowering_options::kept`).

/// The buffers of a forward. A stage without edges from other stages has no input. A stage without edges to other
/// stages has no output.
struct forward_task {
    optpipe::stage stage{};
    optpipe::microbatch microbatch{};
    std::span<const std::byte> input{};
    std::span<std::byte> output{};
    stash_part kept{};
    stash_part freed{};
    /// The stash's storage option, as an index into the problem's list for the stage. All tasks of this stage and
    /// microbatch have the same option.
    storage_index storage = 0;
    /// The inputs along all edges, sorted by stage. `input` is the first input in `inputs`.
    std::span<const received_value> inputs{};
    /// The buffers for the output. `output` is the first buffer in `outputs`. The same activation must be written to
    /// all buffers in `outputs`. Consumers on other ranks, and edges that hold memory, have buffers of their own. Each
    /// buffer names its first consumer.
    std::span<const handed_value> outputs{};
    /// The buffers for this stage's partial result in its group. The gradients of all stages in the group receive this
    /// partial result.
    std::span<const handed_value> partials{};
    /// Attention keys and values of all slices up to this slice, in order. The forward writes the last entry.
    std::span<const slice_memory> keys_values{};
};

/// The buffers of a recomputation. A recomputation runs between the forward (or reload) and the backward.
struct recompute_task {
    optpipe::stage stage{};
    optpipe::microbatch microbatch{};
    /// Has the contents that the forward wrote.
    stash_part kept{};
    stash_part freed{};
    /// Memory for the data that the forward didn't hold. The backward gets `kept`, `freed` and the restored parts as
    /// the recomputation leaves them.
    stash_part restored_kept{};
    stash_part restored_freed{};
    storage_index storage = 0;
    /// Attention keys and values that the forwards wrote.
    std::span<const slice_memory> keys_values{};
};

/// The buffers of an input gradient. A stage that receives no gradient from other stages has no input. A stage that
/// hands no gradient on has no output.
struct backward_task {
    optpipe::stage stage{};
    optpipe::microbatch microbatch{};
    /// The gradient at the stage's output. `output` receives the gradient at the stage's input.
    std::span<const std::byte> input{};
    std::span<std::byte> output{};
    stash_part kept{};
    stash_part freed{};
    /// The part of `weight_stash` that exceeds all other parts of the stash. Empty in a full backward. To write to
    /// `added`, a model needs `backward` (`has_backward`) or a problem without full backwards.
    stash_part added{};
    /// The memory that a RECOMPUTE restored. Empty without a RECOMPUTE. With `backward_extra`, this task does the
    /// recomputation.
    stash_part restored_kept{};
    stash_part restored_freed{};
    storage_index storage = 0;
    /// Whether a full backward completes the gradients of the stage's parameters.
    bool is_last = false;
    /// The gradients at the output, one per consumer stage. The gradient of the output is the sum of all `inputs`.
    /// `input` is the first gradient in `inputs`.
    std::span<const received_value> inputs{};
    /// The buffers for the gradients at the inputs. There is one buffer per stage that supplied an input. `output` is
    /// the first buffer in `outputs`.
    std::span<const handed_value> outputs{};
    /// The partial results of all stages in the group (`forward_task::partials`).
    std::span<const received_value> partials{};
    /// Attention keys and values of this slice and of all earlier slices of the sequence.
    std::span<const slice_memory> keys_values{};
    /// The gradients of keys and values of all slices up to this slice, in order. The last slice of a sequence has no
    /// gradients of its own keys and values. The backward of the last slice runs first, and sets the gradients of keys
    /// and values. The backwards of earlier slices add to the gradients.
    std::span<const slice_memory> keys_values_gradients{};
    /// In a pair, whether the task also computes the weight gradient.
    bool is_full = false;
    /// In a pair, the memory that the pair takes while it runs (`overlap::memory`).
    stash_part pair_memory{};
};

struct weight_task {
    optpipe::stage stage{};
    optpipe::microbatch microbatch{};
    stash_part kept{};
    stash_part added{};
    stash_part restored_kept{};
    storage_index storage = 0;
    /// Whether this task completes the gradients of the stage's parameters for this step.
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

/// The stages of the user's model that are on one rank.
///
/// Semantics: work on the compute lane calls the functions in schedule order, one at a time. `forward` reads the input,
/// and writes the output and the entire stash. `freed` exists until the end of the input gradient, and `kept` until the
/// end of the weight gradient. An offload and a reload may move `freed` and `kept` to another address. `backward_input`
/// reads the gradient at the output and writes the gradient at the input. `backward_input` also stores all data for
/// `backward_weight` in `kept`, `restored_kept` and `added`. `backward_weight` adds to the gradients of the parameters.
/// Stages with frozen weights need no `backward_weight`, and stages without gradients have no backward at all. On a
/// device, functions only put work into the lane; buffers stay valid until the work ends. An exception ends the step on
/// all ranks.
template <class M, class L>
concept stage_model = lane<L> && has_forward<M, L> && has_backward_input<M, L> && has_backward_weight<M, L>;

/// A model that does both halves of a backward in one faster call. Without `backward`, a B calls `backward_input`, then
/// `backward_weight`. Without `backward`, weight stashes larger than the activation need `full_backward = false`.
template <class M, class L> concept has_backward = requires(M& model, L& on, const backward_task& task) {
    { model.backward(on, task) } -> std::same_as<void>;
};
/// A model that runs a forward and a backward of two microbatches as one task. `overlap` runs the first task as
/// `forward` does. `overlap` runs the second task as `backward` does, or as `backward_input` if not `is_full`. Neither
/// task uses a buffer that the other task writes. A program with pairs can't be loaded for a model without `overlap`.
/// On a CUDA stream, use a `cuda::side_stream` for the second task.
template <class M, class L>
concept has_overlap = requires(M& model, L& on, const forward_task& f, const backward_task& b) {
    { model.overlap(on, f, b) } -> std::same_as<void>;
};
template <class M, class L> concept overlapping_stage_model = stage_model<M, L> && has_overlap<M, L>;

/// A model that several pipelines train at once. `reduce` sums or averages the gradients of a stage over the pipelines.
/// `reduce` runs on a separate lane, after the stage's weight gradients and before its update. During `reduce`, the
/// compute lane continues with other stages. All pipelines reduce their stages in the same order. A program with
/// reductions can't be loaded for a model without `reduce`.
template <class M, class L> concept has_reduce = requires(M& model, L& on, stage which) {
    { model.reduce(on, which) } -> std::same_as<void>;
};
/// A model with an optimizer. A program with updates can't be loaded for a model without `update`.
template <class M, class L> concept has_update = requires(M& model, L& on, stage which) {
    { model.update(on, which) } -> std::same_as<void>;
};

/// A model whose forward may hold less than the backward needs. `recompute` restores the missing data before
/// `backward_input` or `backward`. The schedule determines the stages and microbatches for which `recompute` is called.
/// A program with a RECOMPUTE can't be loaded for a model without `recompute`.
template <class M, class L> concept has_recompute = requires(M& model, L& on, const recompute_task& task) {
    { model.recompute(on, task) } -> std::same_as<void>;
};

/// A model with its own message buffers (`buffer_owners`), for a transport that needs addresses. `message(label)` is
/// the memory of the message to send or receive. `message` is called when the exchange is issued. The returned memory
/// must stay valid until the exchange ends. If the model has no `message`, the transport gets only the labels and no
/// addresses.
template <class M> concept has_message = requires(M& model, const task_label& what) {
    { model.message(what) } -> std::same_as<std::span<std::byte>>;
};

/// A model for evaluation or inference. A forward-only model declares `static constexpr bool forward_only = true;`, and
/// needs only `forward`. A program with a task that isn't a forward can't be loaded for a forward-only model.
template <class M> concept forward_only_model = requires { requires static_cast<bool>(M::forward_only); };

/// Checks the type at compile time, for lanes of type `L`. An error names the requirement that isn't met.
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

/// Like `check_stage_model`, for a model that runs pairs. Use this check in a `static_assert` if plans may have pairs.
/// Without the check, programs with pairs are refused only when loaded.
template <class M, class L> consteval bool check_overlapping_stage_model() {
    static_assert(check_stage_model<M, L>());
    static_assert(has_overlap<M, L>,
                  "overlapping stage model: needs `void overlap(lane&, const forward_task&, const backward_task&)`");
    return overlapping_stage_model<M, L>;
}

} // namespace optpipe::execution
