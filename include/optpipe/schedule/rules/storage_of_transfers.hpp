#pragma once

#include "optpipe/core/container.hpp"
#include "optpipe/pipeline/problem.hpp"
#include "optpipe/schedule/operation.hpp"
#include "optpipe/schedule/rules/cells.hpp"
#include "optpipe/schedule/schedule.hpp"

#include <vector>

namespace optpipe {
namespace detail {

constexpr operation& operation_in(operation& op) { return op; }
constexpr operation& operation_in(timed_operation& timed) { return timed.op; }

/// Whether a transfer doesn't name its storage option, although its stage has an option with transfers. Contract: the
/// problem has the operation's stage.
template <pipeline_graph Graph>
[[nodiscard]] constexpr bool lacks_storage(const basic_problem<Graph>& p, const operation& op) {
    return op.storage == 0 && is_transfer(op.kind) && !p.storage_of(op.stage, 0).offloads() &&
           p.whole_offload(op.stage);
}

template <pipeline_graph Graph, class Operations>
constexpr void set_storage_of_transfers(const basic_problem<Graph>& p, Operations& operations) {
    const cell_numbering cell{p.graph};
    const operation_numbering<Graph> number{p.graph};
    std::vector<unsigned char> lacks;
    for (auto& each : operations) {
        const auto& op = operation_in(each);
        if (!is_transfer(op.kind) || !number.contains(op) || !lacks_storage(p, op)) continue;
        lacks.resize(cell.size(), 0);
        lacks[cell(op)] = 1;
    }
    if (lacks.empty()) return;
    for (auto& each : operations)
        if (auto& op = operation_in(each); number.contains(op) && op.storage == 0 && lacks[cell(op)])
            op.storage = *p.whole_offload(op.stage);
}

template <pipeline_graph Graph, class Operations>
[[nodiscard]] constexpr bool any_lacks_storage(const basic_problem<Graph>& p, const Operations& operations) {
    for (const operation& op : operations)
        if (is_transfer(op.kind) && op.stage.position() < p.graph.stages() && lacks_storage(p, op)) return true;
    return false;
}

} // namespace detail

/// The operation with its storage option filled in. A transfer that names no option gets the stage's first option that
/// offloads the whole stash.
template <pipeline_graph Graph>
[[nodiscard]] constexpr operation with_implied_storage(const basic_problem<Graph>& p, operation op) {
    if (detail::lacks_storage(p, op)) op.storage = *p.whole_offload(op.stage);
    return op;
}

/// Gives the order or schedule `given` the storage options that its transfers imply. An order from text, from a file of
/// another program, or from a builder need not name options. An operation that doesn't name an option has the stage's
/// first option. If a cell has transfers but its stage's first option has none, all operations of the cell get the
/// stage's first option that offloads the whole stash. All other operations stay as they are.
template <pipeline_graph Graph, class Sequence>
[[nodiscard]] constexpr Sequence with_storage_of_transfers(const basic_problem<Graph>& p, Sequence given) {
    detail::set_storage_of_transfers(p, given.operations);
    return given;
}

} // namespace optpipe
