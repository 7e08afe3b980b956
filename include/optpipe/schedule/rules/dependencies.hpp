#pragma once

#include "optpipe/pipeline/problem.hpp"
#include "optpipe/schedule/operation.hpp"

#include <algorithm>
#include <cstddef>
#include <optional>

namespace optpipe {

/// What happens to a stash between its forward and its gradient.
struct stash_way {
    bool is_offloaded = false;
    bool is_recomputed = false;

    constexpr stash_way() = default;
    constexpr stash_way(bool offloaded, bool recomputed = false) // NOLINT(google-explicit-constructor)
        : is_offloaded{offloaded}, is_recomputed{recomputed} {}
    constexpr explicit stash_way(const storage_option& stored)
        : is_offloaded{stored.offloads()}, is_recomputed{stored.recomputes()} {}
};

/// As a list of storage options says; `is_offloaded` counts where there is none.
template <pipeline_graph Graph>
[[nodiscard]] constexpr stash_way stash_way_of(const basic_problem<Graph>& p, const operation& op, bool is_offloaded) {
    return p.storage[op.stage].empty() ? stash_way{is_offloaded} : stash_way{p.storage[op.stage][op.storage]};
}

/// Rules 2, 3, 5 and 6 of a valid schedule (io/README.md): calls `visit(before)` for every operation that `op` waits
/// for outside its lane, in a step of so many stages. Where `before` is the backward_input of another stage, a full
/// backward of the same stage and microbatch may take its place. The gradient waits for the last of what brings the
/// stash of this stage and microbatch back: its recomputation, its reload, or else its forward.
///
/// This is the only place that states which operation waits for which, except for `validate`, which is independent;
/// tests compare the two.
template <class Visit>
constexpr void for_each_input(std::size_t stages, const operation& op, stash_way way, const Visit& visit) {
    const stage s = op.stage;
    const microbatch m = op.microbatch;
    const auto brought_back = [&] { return way.is_offloaded ? reload_of(s, m) : forward(s, m); };
    switch (op.kind) {
    case operation_kind::forward:
        if (s.position() > 0) visit(forward(s.previous(), m));
        return;
    case operation_kind::backward_input:
    case operation_kind::backward:
        visit(way.is_recomputed ? recompute_of(s, m) : brought_back());
        if (s.position() + 1 < stages) visit(backward_input(s.next(), m));
        return;
    case operation_kind::backward_weight: visit(backward_input(s, m)); return;
    case operation_kind::offload: visit(forward(s, m)); return;
    case operation_kind::reload: visit(offload_of(s, m)); return;
    case operation_kind::recompute: visit(brought_back()); return;
    }
}

/// The same with times: `visit(before, delay)`, where the operation starts no earlier than `delay` after the end of
/// `before`.
template <pipeline_graph Graph, class Visit>
constexpr void for_each_dependency(const basic_problem<Graph>& p, const operation& op, stash_way way,
                                   const Visit& visit) {
    for_each_input(p.graph.stages(), op, way, [&](const operation& before) {
        visit(before, before.stage == op.stage ? duration{} : p.hop(before.stage, op.stage));
    });
}

/// The stage that waits for the output of an operation, if another one does: the next after a forward, the previous
/// after a gradient. The reverse of `for_each_dependency` between stages.
template <pipeline_graph Graph>
[[nodiscard]] constexpr std::optional<stage> consumer_of(const basic_problem<Graph>& p, const operation& op) {
    if (op.kind == operation_kind::forward && !p.is_last(op.stage)) return op.stage.next();
    if (is_gradient(op.kind) && !p.is_first(op.stage)) return op.stage.previous();
    return std::nullopt;
}

/// When all inputs of an operation are ready. `end_of(operation)` is the end of another one, unlimited if unknown; then
/// so is the result.
template <pipeline_graph Graph, class EndOf>
[[nodiscard]] constexpr duration input_time(const basic_problem<Graph>& p, const operation& op, const EndOf& end_of,
                                            stash_way way = {}) {
    duration ready{};
    for_each_dependency(p, op, way, [&](const operation& before, duration delay) {
        auto end = end_of(before);
        if (before.stage != op.stage && before.kind == operation_kind::backward_input)
            end = std::min(end, end_of(backward(before.stage, before.microbatch)));
        ready = std::max(ready, end + delay);
    });
    return ready;
}

} // namespace optpipe
