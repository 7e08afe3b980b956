#pragma once

#include "optpipe/pipeline/problem.hpp"
#include "optpipe/schedule/operation.hpp"

#include <algorithm>
#include <cstddef>
#include <optional>

namespace optpipe {

/// Whether a stash is offloaded, and whether it is recomputed.
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

/// How the operation's stash is stored, according to the operation's storage option.
template <pipeline_graph Graph>
[[nodiscard]] constexpr stash_way stash_way_of(const basic_problem<Graph>& p, const operation& op) {
    return stash_way{storage_of(p, op)};
}

/// Returns the input of `op` that belongs to the same stage and microbatch. A gradient waits for the stash's
/// recomputation. Without a recomputation, the gradient waits for the reload. Without a recomputation and a reload, the
/// gradient waits for the forward.
///
/// The inputs of an operation are defined by rules 2, 3, 5 and 6 of a valid schedule (io/README.md). All other inputs
/// belong to another stage, or to another slice of the sequence. Rules 2, 3, 5 and 6 appear in two other places.
/// `validate` states the rules independently, and tests compare the two implementations. The JavaScript of
/// `html_timeline.hpp` repeats the rule for the input of the same stage.
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
/// Calls `visit(before, delay)` for the inputs from other stages and microbatches. The operation starts at least
/// `delay` after the end of `before`. If `before` is an I, the B of the same cell may take its place. `is_simple` is
/// `p.is_simple()`; callers compute it once and pass it.
template <pipeline_graph Graph, class Visit>
constexpr void for_each_input_of_others(const basic_problem<Graph>& p, const operation& op, const Visit& visit,
                                        bool is_simple) {
    const stage s = op.stage;
    const microbatch m = op.microbatch;
    if (is_simple) { // the same inputs as below, found in fewer steps
        if (op.kind == operation_kind::forward && !p.is_first(s))
            visit(forward(s.previous(), m), p.hop(s.previous(), s));
        if (is_gradient(op.kind) && !p.is_last(s)) visit(backward_input(s.next(), m), p.hop(s.next(), s));
        return;
    }
    if (op.kind == operation_kind::forward) {
        p.graph.for_each_edge_into(s, [&](const edge& e) { visit(forward(e.from, m), p.message_time(e, m)); });
        if (const auto slice = p.microbatches.slice_before(m)) visit(forward(s, *slice), duration{});
    }
    if (is_gradient(op.kind)) {
        p.graph.for_each_edge_out_of(s, [&](const edge& e) {
            if (p.carries_gradients(e)) visit(backward_input(e.to, m), p.gradient_message_time(e, m));
        });
        p.groups.for_each_member(s, [&](stage member, duration delay) { visit(forward(member, m), delay); });
        if (const auto slice = p.microbatches.slice_after(m)) visit(backward_input(s, *slice), duration{});
    }
}

template <pipeline_graph Graph, class Visit>
constexpr void for_each_input_of_others(const basic_problem<Graph>& p, const operation& op, const Visit& visit) {
    for_each_input_of_others(p, op, visit, p.is_simple());
}

/// Calls `visit(before, delay)` for all inputs.
template <pipeline_graph Graph, class Visit>
constexpr void for_each_dependency(const basic_problem<Graph>& p, const operation& op, stash_way way,
                                   const Visit& visit) {
    if (const auto own = own_input_of(op, way)) visit(*own, duration{});
    for_each_input_of_others(p, op, visit);
}

/// Calls `visit(after, delay)` for operations of other stages and microbatches that wait for `op`. `after` starts at
/// least `delay` after the end of `op`. Reverse of `for_each_input_of_others`. If `after` is an I, the B of the same
/// cell may take its place.
template <pipeline_graph Graph, class Visit>
constexpr void for_each_consumer(const basic_problem<Graph>& p, const operation& op, const Visit& visit) {
    const stage s = op.stage;
    const microbatch m = op.microbatch;
    if (op.kind == operation_kind::forward) {
        p.graph.for_each_edge_out_of(s, [&](const edge& e) { visit(forward(e.to, m), p.message_time(e, m)); });
        p.groups.for_each_member(s, [&](stage member, duration delay) {
            if (p.costs[member].gradients != gradient_kind::none) visit(backward_input(member, m), delay);
        });
        if (const auto slice = p.microbatches.slice_after(m)) visit(forward(s, *slice), duration{});
    }
    if (is_gradient(op.kind)) {
        p.graph.for_each_edge_into(s, [&](const edge& e) {
            if (p.carries_gradients(e)) visit(backward_input(e.from, m), p.gradient_message_time(e, m));
        });
        if (const auto slice = p.microbatches.slice_before(m)) visit(backward_input(s, *slice), duration{});
    }
}

/// The input from another stage, in a chain of `stages` stages. If the input is an I, the B of the same cell may take
/// its place.
[[nodiscard]] constexpr std::optional<operation> input_from_other_stage(std::size_t stages, const operation& op) {
    if (op.kind == operation_kind::forward && op.stage.position() > 0)
        return forward(op.stage.previous(), op.microbatch);
    if (is_gradient(op.kind) && op.stage.position() + 1 < stages) return backward_input(op.stage.next(), op.microbatch);
    return std::nullopt;
}
/// The operation of another stage that waits for `op` in a chain, if any. The function is the reverse of
/// `input_from_other_stage`. If the result is an I, the B of the same cell may take its place.
[[nodiscard]] constexpr std::optional<operation> consumer_of(std::size_t stages, const operation& op) {
    if (op.kind == operation_kind::forward && op.stage.position() + 1 < stages)
        return forward(op.stage.next(), op.microbatch);
    if (is_gradient(op.kind) && op.stage.position() > 0) return backward_input(op.stage.previous(), op.microbatch);
    return std::nullopt;
}

/// The time when all inputs of an operation are ready. `end_of(operation)` returns the operation's end, or an unlimited
/// time while unknown. If the end of an input is unknown, the result is unlimited, too. Inlined, as little code remains
/// if the caller knows the kind of operation. Without inlining, ZB auto and ZB-V on 64 ranks take a tenth longer.
template <pipeline_graph Graph, class EndOf>
[[nodiscard, gnu::always_inline]] constexpr duration input_time(const basic_problem<Graph>& p, const operation& op,
                                                                const EndOf& end_of, stash_way way, bool is_simple) {
    duration ready{};
    if (const auto own = own_input_of(op, way)) ready = std::max(ready, end_of(*own));
    const auto take = [&](const operation& before, duration delay) {
        auto end = end_of(before);
        if (before.kind == operation_kind::backward_input)
            end = std::min(end, end_of(backward(before.stage, before.microbatch)));
        ready = std::max(ready, end + delay);
    };
    for_each_input_of_others(p, op, take, is_simple);
    return ready;
}
template <pipeline_graph Graph, class EndOf>
[[nodiscard, gnu::always_inline]] constexpr duration input_time(const basic_problem<Graph>& p, const operation& op,
                                                                const EndOf& end_of, stash_way way = {}) {
    return input_time(p, op, end_of, way, p.is_simple());
}

} // namespace optpipe
