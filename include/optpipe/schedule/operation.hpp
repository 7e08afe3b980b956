#pragma once

#include "optpipe/core/bounded_text.hpp"
#include "optpipe/core/index.hpp"
#include "optpipe/core/quantity.hpp"
#include "optpipe/pipeline/problem.hpp"

#include <array>
#include <charconv>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>

namespace optpipe {

enum class operation_kind : std::uint8_t {
    forward,         ///< F
    backward_input,  ///< I
    backward_weight, ///< W
    backward,        ///< B: runs I and W as one operation
    offload,         ///< OFFLOAD: copies the stash to the host
    reload,          ///< RELOAD: copies the stash back to the device
    recompute,       ///< RECOMPUTE: restores the dropped part of the stash before the backward
};

inline constexpr std::array all_operation_kinds{
    operation_kind::forward, operation_kind::backward_input, operation_kind::backward_weight, operation_kind::backward,
    operation_kind::offload, operation_kind::reload,         operation_kind::recompute};

[[nodiscard]] constexpr bool is_transfer(operation_kind kind) {
    return kind == operation_kind::offload || kind == operation_kind::reload;
}

/// Whether an operation of this kind passes the gradient to earlier stages.
[[nodiscard]] constexpr bool is_gradient(operation_kind kind) {
    return kind == operation_kind::backward_input || kind == operation_kind::backward;
}

/// Whether an operation of this kind computes gradients of weights. A W or B is the last operation that uses the stash.
[[nodiscard]] constexpr bool is_weight_gradient(operation_kind kind) {
    return kind == operation_kind::backward_weight || kind == operation_kind::backward;
}

/// The kind's letter in PyTorch. OFFLOAD, RELOAD and RECOMPUTE are spelled in full.
[[nodiscard]] constexpr std::string_view spelling(operation_kind kind) {
    switch (kind) {
    case operation_kind::forward: return "F";
    case operation_kind::backward_input: return "I";
    case operation_kind::backward_weight: return "W";
    case operation_kind::backward: return "B";
    case operation_kind::offload: return "OFFLOAD";
    case operation_kind::reload: return "RELOAD";
    case operation_kind::recompute: return "RECOMPUTE";
    }
    return "?";
}

/// A single letter for the kind. C is RECOMPUTE, because R is RELOAD.
[[nodiscard]] constexpr char letter_of(operation_kind kind) {
    return kind == operation_kind::recompute ? 'C' : spelling(kind).front();
}

/// Work of one kind, by one stage on one microbatch. Spelled `<stage><KIND><microbatch>`, such as `2F0`.
struct operation {
    optpipe::stage stage{};
    operation_kind kind = operation_kind::forward;
    optpipe::microbatch microbatch{};
    /// The storage option of this stage and microbatch: an index in the stage's list. All operations of the stage and
    /// microbatch have the same option.
    storage_index storage = 0;
    /// Whether the operation is a part of a pair (schedule/pair.hpp).
    bool is_paired = false;
    friend constexpr auto operator<=>(const operation&, const operation&) = default;
    friend constexpr bool operator==(const operation&,
                                     const operation&) = default; // needed by nvcc, although <=> declares it
};

constexpr operation forward(stage s, microbatch m) { return {s, operation_kind::forward, m}; }
constexpr operation backward_input(stage s, microbatch m) { return {s, operation_kind::backward_input, m}; }
constexpr operation backward_weight(stage s, microbatch m) { return {s, operation_kind::backward_weight, m}; }
constexpr operation backward(stage s, microbatch m) { return {s, operation_kind::backward, m}; }
constexpr operation offload_of(stage s, microbatch m) { return {s, operation_kind::offload, m}; }
constexpr operation reload_of(stage s, microbatch m) { return {s, operation_kind::reload, m}; }
constexpr operation recompute_of(stage s, microbatch m) { return {s, operation_kind::recompute, m}; }

/// Whether `a` and `b` have the same stage, kind and microbatch. Storage options and pairs are ignored.
[[nodiscard]] constexpr bool is_same_work(const operation& a, const operation& b) {
    return a.stage == b.stage && a.kind == b.kind && a.microbatch == b.microbatch;
}

/// The operation of kind `kind` with the stage and microbatch of `op`, not paired.
constexpr operation sibling(operation op, operation_kind kind) {
    op.kind = kind;
    op.is_paired = false;
    return op;
}

[[nodiscard]] inline std::string to_string(const operation& op) {
    return std::to_string(op.stage.value()).append(spelling(op.kind)).append(std::to_string(op.microbatch.value()));
}

/// The spelling with one letter for the kind, for pictures. For example, `0C2` stands for 0RECOMPUTE2.
[[nodiscard]] inline std::string short_spelling(const operation& op) {
    return std::to_string(op.stage.value()) + letter_of(op.kind) + std::to_string(op.microbatch.value());
}

/// Like `to_string`, but usable in constant expressions.
[[nodiscard]] constexpr bounded_text<32> spelling(const operation& op) {
    return {op.stage.value(), spelling(op.kind), op.microbatch.value()};
}

/// The inverse of `to_string`; empty for any other text.
[[nodiscard]] inline std::optional<operation> parse_operation(std::string_view text) {
    const auto* const end = text.data() + text.size();
    std::uint32_t s = 0;
    std::uint32_t m = 0;
    const auto after_stage = std::from_chars(text.data(), end, s);
    if (after_stage.ec != std::errc{}) return std::nullopt;
    const auto is_digit = [](char c) { return c >= '0' && c <= '9'; };
    const auto* letter_end = after_stage.ptr;
    while (letter_end != end && !is_digit(*letter_end))
        ++letter_end;
    const auto after_microbatch = std::from_chars(letter_end, end, m);
    if (after_microbatch.ec != std::errc{} || after_microbatch.ptr != end) return std::nullopt;
    const std::string_view letters(after_stage.ptr, static_cast<std::size_t>(letter_end - after_stage.ptr));
    for (const auto kind : all_operation_kinds)
        if (letters == spelling(kind)) return operation{stage{s}, kind, microbatch{m}};
    return std::nullopt;
}

/// How the stash of an operation's stage and microbatch is stored.
template <pipeline_graph Graph>
[[nodiscard]] constexpr const storage_option& storage_of(const basic_problem<Graph>& p, const operation& op) {
    const auto& list = p.storage[op.stage];
    OPTPIPE_EXPECT(op.storage < list.size(), "no such storage option");
    return list[op.storage];
}

/// Whether the problem allows the operation. Contract: the operation's stage exists.
template <pipeline_graph Graph>
[[nodiscard]] constexpr bool is_possible(const basic_problem<Graph>& p, const operation& op) {
    const auto& list = p.storage[op.stage];
    if (op.storage >= list.size()) return false;
    if (op.kind == operation_kind::recompute) return list[op.storage].recomputes();
    if (is_transfer(op.kind)) return list[op.storage].offloads();
    const auto gradients = p.costs[op.stage].gradients;
    if (gradients == gradient_kind::full || op.kind == operation_kind::forward) return true;
    return gradients == gradient_kind::input && op.kind == operation_kind::backward_input;
}

/// Whether the stage's backward may be split into I and W, or the stage has I alone.
template <pipeline_graph Graph> [[nodiscard]] constexpr bool may_split(const basic_problem<Graph>& p, stage s) {
    return p.split_backward || p.costs[s].gradients == gradient_kind::input;
}
/// Whether the stage's backward may be either a B, or an I with a W.
template <pipeline_graph Graph> [[nodiscard]] constexpr bool may_split_or_join(const basic_problem<Graph>& p, stage s) {
    return p.split_backward && p.full_backward && p.costs[s].gradients == gradient_kind::full;
}

/// Whether the operation is the last computation of its stage and microbatch.
template <pipeline_graph Graph>
[[nodiscard]] constexpr bool is_last_computation(const basic_problem<Graph>& p, const operation& op) {
    switch (p.costs[op.stage].gradients) {
    case gradient_kind::full: return is_weight_gradient(op.kind);
    case gradient_kind::input: return op.kind == operation_kind::backward_input;
    case gradient_kind::none: return op.kind == operation_kind::forward;
    }
    return false;
}

/// Whether a B stands for I and then W, because the problem has no full backwards.
template <pipeline_graph Graph>
[[nodiscard]] constexpr bool is_two_operations(const basic_problem<Graph>& p, const operation& op) {
    return op.kind == operation_kind::backward && !p.full_backward;
}

/// The duration of an operation outside of pairs, with its microbatch's factors. Contract: the storage option of a
/// transfer or recomputation has this operation.
template <pipeline_graph Graph>
[[nodiscard]] constexpr duration duration_of(const basic_problem<Graph>& p, const operation& op) {
    const auto& c = p.costs[op.stage];
    const auto& f = p.microbatches.factors(op.stage, op.microbatch);
    if (op.kind == operation_kind::forward) return f.forward * c.forward;
    if (op.kind == operation_kind::backward_weight) return f.backward_weight * c.backward_weight;
    const auto& stored = storage_of(p, op);
    switch (op.kind) {
    case operation_kind::forward:
    case operation_kind::backward_weight: break; // handled above
    case operation_kind::backward_input: return f.backward_input * c.backward_input + f.forward * stored.backward_extra;
    case operation_kind::backward:
        return f.backward_input * c.backward_input + f.backward_weight * c.backward_weight +
               f.forward * stored.backward_extra;
    case operation_kind::offload:
        OPTPIPE_EXPECT(stored.offloads(), "this storage option has no transfers");
        return f.memory * stored.transfer->offload;
    case operation_kind::reload:
        OPTPIPE_EXPECT(stored.offloads(), "this storage option has no transfers");
        return f.memory * stored.transfer->reload;
    case operation_kind::recompute:
        OPTPIPE_EXPECT(stored.recomputes(), "this stage isn't recomputed");
        return f.forward * stored.recompute;
    }
    return {};
}

/// The duration of an operation outside of pairs, for a microbatch without factors. Contract: as for `duration_of`.
template <pipeline_graph Graph>
[[nodiscard]] constexpr duration usual_duration(const basic_problem<Graph>& p, const operation& op) {
    const auto& c = p.costs[op.stage];
    const auto& stored = storage_of(p, op);
    switch (op.kind) {
    case operation_kind::forward: return c.forward;
    case operation_kind::backward_weight: return c.backward_weight;
    case operation_kind::backward_input: return c.backward_input + stored.backward_extra;
    case operation_kind::backward: return c.backward() + stored.backward_extra;
    case operation_kind::offload: return stored.transfer->offload;
    case operation_kind::reload: return stored.transfer->reload;
    case operation_kind::recompute: return stored.recompute;
    }
    return {};
}

/// How an operation changes the memory of its rank (io/README.md, rules 8 and 9). Amounts aren't negative. Excludes
/// memory that the operation frees but other operations took (`for_each_release_of_others`).
struct memory_effect {
    memory_size acquired_at_start{};
    memory_size released_at_end{};
    memory_size host_acquired_at_start{};
    memory_size host_released_at_end{};

    friend constexpr memory_effect operator*(double factor, const memory_effect& e) {
        return {factor * e.acquired_at_start, factor * e.released_at_end, factor * e.host_acquired_at_start,
                factor * e.host_released_at_end};
    }
};

/// The effect of an operation with these costs and this storage option, without `kv` and edges.
[[nodiscard]] constexpr memory_effect memory_effect_of(const stage_costs& c, const storage_option& stored,
                                                       operation_kind kind) {
    constexpr memory_size none{};
    switch (kind) {
    case operation_kind::forward:
        return {stored.held, c.gradients == gradient_kind::none ? stored.held : none, none, none};
    case operation_kind::backward_input: {
        const auto restored = stored.restored(c);
        const auto left = c.gradients == gradient_kind::input ? none : c.weight_stash;
        return left > restored ? memory_effect{left - restored, none, none, none}
                               : memory_effect{none, restored - left, none, none};
    }
    case operation_kind::backward_weight: return {none, c.weight_stash, none, none};
    case operation_kind::backward: return {none, stored.restored(c), none, none};
    case operation_kind::offload: return {none, stored.transfer_size, stored.transfer_size, none};
    case operation_kind::reload: return {stored.transfer_size, none, none, stored.transfer_size};
    case operation_kind::recompute: return {stored.restored(c) - stored.held, none, none, none};
    }
    return {};
}

namespace detail {

/// Adds the memory of a slice's attention keys and values, held from the start of F to the end of the gradient. All
/// slices but the last also get the gradients of keys and values, which have the same size. The gradients of keys and
/// values are held from the start of the last slice's gradient to the end of the slice's own gradient.
template <pipeline_graph Graph>
constexpr void add_effect_of_slice(const basic_problem<Graph>& p, const operation& op, memory_effect& effect) {
    const auto kv_of = [&](microbatch m) { return p.cost(op.stage, m).kv; };
    const auto own = kv_of(op.microbatch);
    if (op.kind == operation_kind::forward) effect.acquired_at_start += own;
    if (!is_gradient(op.kind)) return;
    effect.released_at_end += own;
    if (p.microbatches.slice_after(op.microbatch)) {
        effect.released_at_end += own;
        return;
    }
    for (auto m = p.microbatches.slice_before(op.microbatch); m; m = p.microbatches.slice_before(*m))
        effect.acquired_at_start += kv_of(*m);
}

/// Adds the memory that edges hold on the operation's rank (`edge::held`).
template <pipeline_graph Graph>
constexpr void add_effect_of_edges(const basic_problem<Graph>& p, const operation& op, memory_effect& effect) {
    const auto held_by = [&](const edge& e) { return p.microbatches.factors(e.from, op.microbatch).memory * e.held; };
    if (op.kind == operation_kind::forward)
        p.graph.for_each_edge_out_of(op.stage, [&](const edge& e) { effect.acquired_at_start += held_by(e); });
    if (is_gradient(op.kind))
        p.graph.for_each_edge_into(op.stage, [&](const edge& e) {
            if (p.carries_gradients(e)) effect.acquired_at_start += held_by(e);
        });
}

} // namespace detail

/// The memory effect of edges, attention keys and values, which doesn't depend on the storage option.
template <pipeline_graph Graph>
[[nodiscard]] constexpr memory_effect memory_effect_beside_stash(const basic_problem<Graph>& p, const operation& op) {
    memory_effect effect{};
    if (p.microbatches.is_slice(op.microbatch)) detail::add_effect_of_slice(p, op, effect);
    if (!p.graph.is_chain()) detail::add_effect_of_edges(p, op, effect);
    return effect;
}

/// The effect of an operation, with the factors of its microbatch. Contract: the stage has the operation's storage
/// option.
template <pipeline_graph Graph>
[[nodiscard]] constexpr memory_effect memory_effect_of(const basic_problem<Graph>& p, const operation& op) {
    auto effect = memory_effect_of(p.costs[op.stage], storage_of(p, op), op.kind);
    if (p.is_simple()) return effect;
    if (p.microbatches.has_factors()) effect = p.microbatches.factors(op.stage, op.microbatch).memory * effect;
    const auto beside = memory_effect_beside_stash(p, op);
    effect.acquired_at_start += beside.acquired_at_start;
    effect.released_at_end += beside.released_at_end;
    return effect;
}

/// Calls `visit(rank, amount)` for device memory that other operations took and the end of `op` frees, on any rank. The
/// memory belongs to edges, or to attention keys and values of a stage without gradients.
template <pipeline_graph Graph, class Visit>
constexpr void for_each_release_of_others(const basic_problem<Graph>& p, const operation& op, const Visit& visit) {
    if (p.is_simple()) return;
    const auto free_edge = [&](const edge& e, stage at) {
        const auto held = p.microbatches.factors(e.from, op.microbatch).memory * e.held;
        if (held > memory_size{}) visit(p.rank_of(at), held);
    };
    if (!p.graph.is_chain() && op.kind == operation_kind::forward)
        p.graph.for_each_edge_into(op.stage, [&](const edge& e) { free_edge(e, e.from); });
    if (!p.graph.is_chain() && is_gradient(op.kind))
        p.graph.for_each_edge_out_of(op.stage, [&](const edge& e) {
            if (p.carries_gradients(e)) free_edge(e, e.to);
        });
    const bool is_end_of_sequence =
        op.kind == operation_kind::forward && p.costs[op.stage].gradients == gradient_kind::none &&
        p.microbatches.is_slice(op.microbatch) && !p.microbatches.slice_after(op.microbatch);
    if (!is_end_of_sequence) return;
    memory_size kv{};
    for (auto m = std::optional{op.microbatch}; m; m = p.microbatches.slice_before(*m))
        kv += p.cost(op.stage, *m).kv;
    if (kv > memory_size{}) visit(p.rank_of(op.stage), kv);
}

} // namespace optpipe
