#pragma once

#include "optpipe/pipeline/problem.hpp"
#include "optpipe/schedule/operation.hpp"

#include <algorithm>
#include <cstddef>
#include <optional>

namespace optpipe {

/// Whether a stash is offloaded, and whether it is recomputed, between its forward and its gradient.
struct stash_way {
    bool is_offloaded = false;
    bool is_recomputed = false;

    constexpr stash_way() = default;
    constexpr stash_way(bool offloaded, bool recomputed = false) // NOLINT(google-explicit-constructor)
        : is_offloaded{offloaded}, is_recomputed{recomputed} {}
    constexpr explicit stash_way(const storage_option& stored)
        : is_offloaded{stored.offloads()}, is_recomputed{stored.recomputes()} {}
};

/// Whether the inputs of the operation depend on how the stash is stored.
[[nodiscard]] constexpr bool waits_for_stash(operation_kind kind) {
    return is_gradient(kind) || kind == operation_kind::recompute;
}

/// The way of the stash by its storage option.
template <pipeline_graph Graph>
[[nodiscard]] constexpr stash_way stash_way_of(const basic_problem<Graph>& p, const operation& op) {
    return stash_way{storage_of(p, op)};
}

/// Rules 2, 3, 5 and 6 of a valid schedule (io/README.md): the inputs of an operation, in addition to the order of its
/// lane. These are one operation of its own stage and microbatch, one of another stage, or both. Only this file states
/// these rules, except for `validate`, which is independent (tests compare the two), and the JavaScript of
/// `html_timeline.hpp`.
///
/// The input of the same stage and microbatch. A gradient waits for the last operation that brings the stash back: its
/// recomputation, its reload, or else its forward.
[[nodiscard]] constexpr std::optional<operation> own_input_of(const operation& op, stash_way way) {
    const auto brought_back = way.is_offloaded ? operation_kind::reload : operation_kind::forward;
    auto kind = operation_kind::forward;
    switch (op.kind) {
    case operation_kind::forward: return std::nullopt;
    case operation_kind::backward_input:
    case operation_kind::backward: kind = way.is_recomputed ? operation_kind::recompute : brought_back; break;
    case operation_kind::backward_weight: kind = operation_kind::backward_input; break;
    case operation_kind::offload: break;
    case operation_kind::reload: kind = operation_kind::offload; break;
    case operation_kind::recompute: kind = brought_back; break;
    }
    return operation{op.stage, kind, op.microbatch};
}
/// The input from another stage, in a step of `stages` stages. If it is a backward_input, a full backward of the same
/// stage and microbatch may take its place.
[[nodiscard]] constexpr std::optional<operation> input_from_other_stage(std::size_t stages, const operation& op) {
    if (op.kind == operation_kind::forward && op.stage.position() > 0)
        return forward(op.stage.previous(), op.microbatch);
    if (is_gradient(op.kind) && op.stage.position() + 1 < stages) return backward_input(op.stage.next(), op.microbatch);
    return std::nullopt;
}

/// Calls `visit(before)` for both inputs.
template <class Visit>
constexpr void for_each_input(std::size_t stages, const operation& op, stash_way way, const Visit& visit) {
    if (const auto own = own_input_of(op, way)) visit(*own);
    if (const auto other = input_from_other_stage(stages, op)) visit(*other);
}

/// Calls `visit(before, delay)` for both inputs: the operation starts no earlier than `delay` after the end of
/// `before`.
template <pipeline_graph Graph, class Visit>
constexpr void for_each_dependency(const basic_problem<Graph>& p, const operation& op, stash_way way,
                                   const Visit& visit) {
    if (const auto own = own_input_of(op, way)) visit(*own, duration{});
    if (const auto other = input_from_other_stage(p.graph.stages(), op)) visit(*other, p.hop(other->stage, op.stage));
}

/// The operation of another stage that waits for the output of an operation, if there is one: the reverse of
/// `input_from_other_stage`. If it is a backward_input, a full backward of the same stage and microbatch may take its
/// place.
[[nodiscard]] constexpr std::optional<operation> consumer_of(std::size_t stages, const operation& op) {
    if (op.kind == operation_kind::forward && op.stage.position() + 1 < stages)
        return forward(op.stage.next(), op.microbatch);
    if (is_gradient(op.kind) && op.stage.position() > 0) return backward_input(op.stage.previous(), op.microbatch);
    return std::nullopt;
}

/// The time when all inputs of an operation are ready. `end_of(operation)` is the end of an operation, unlimited if
/// unknown; then the result is unlimited, too. Always inline: callers know the kind, so little of it remains; with a
/// call instead, ZB auto and ZB-V on 64 ranks take a tenth longer.
template <pipeline_graph Graph, class EndOf>
[[nodiscard, gnu::always_inline]] constexpr duration input_time(const basic_problem<Graph>& p, const operation& op,
                                                                const EndOf& end_of, stash_way way = {}) {
    duration ready{};
    if (const auto own = own_input_of(op, way)) ready = std::max(ready, end_of(*own));
    if (const auto other = input_from_other_stage(p.graph.stages(), op)) {
        auto end = end_of(*other);
        if (other->kind == operation_kind::backward_input)
            end = std::min(end, end_of(backward(other->stage, other->microbatch)));
        ready = std::max(ready, end + p.hop(other->stage, op.stage));
    }
    return ready;
}

} // namespace optpipe
