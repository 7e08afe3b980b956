#pragma once

#include "optpipe/pipeline/problem.hpp"
#include "optpipe/schedule/operation.hpp"
#include "optpipe/schedule/rules/cells.hpp"
#include "optpipe/schedule/rules/dependencies.hpp"
#include "optpipe/schedule/schedule.hpp"

#include <cstddef>
#include <utility>
#include <vector>

namespace optpipe {

/// The storage option that the forward of each cell names.
template <pipeline_graph Graph, class Operations>
[[nodiscard]] constexpr std::vector<std::size_t> storage_in_use(const basic_problem<Graph>& p,
                                                                const Operations& operations) {
    const cell_numbering cell{p.graph};
    std::vector<std::size_t> used(cell.size(), 0);
    for (const operation& op : operations)
        if (op.kind == operation_kind::forward) used[cell(op)] = op.storage;
    return used;
}

namespace detail {

/// Makes operations follow the storage options of their cells, in one pass.
template <pipeline_graph Graph, class Operations> class storage_follower {
public:
    constexpr storage_follower(const basic_problem<Graph>& p, const Operations& given,
                               const std::vector<std::size_t>& used)
        : p_{p}, used_{used}, cell_{p.graph}, number_{p.graph}, is_there_(number_.size(), 0) {
        for (const operation& op : given)
            is_there_[number_(op)] = 1;
        result_.reserve(given.size());
    }

    constexpr Operations run(const Operations& given) && {
        for (const operation& op : given)
            append(op);
        return std::move(result_);
    }

private:
    constexpr void append(operation op) {
        const auto option = used_[cell_(op)];
        const auto& stored = p_.storage_of(op.stage, option);
        if (is_transfer(op.kind) && !stored.offloads()) return;
        if (op.kind == operation_kind::recompute && !stored.recomputes()) return;
        op.storage = static_cast<storage_index>(option);
        if (waits_for_stash(op.kind) && stored.offloads()) supply(sibling(op, operation_kind::reload));
        if (is_gradient(op.kind) && stored.recomputes()) supply(sibling(op, operation_kind::recompute));
        result_.push_back(op);
        if (op.kind == operation_kind::forward && stored.offloads()) supply(sibling(op, operation_kind::offload));
    }
    constexpr void supply(const operation& op) {
        auto& is_there = is_there_[number_(op)];
        if (!is_there) result_.push_back(op);
        is_there = 1;
    }

    const basic_problem<Graph>& p_;
    const std::vector<std::size_t>& used_;
    cell_numbering cell_;
    operation_numbering<Graph> number_;
    std::vector<unsigned char> is_there_;
    Operations result_{};
};

} // namespace detail

/// The operations `given`, with the storage option `used[cell]` for each stage and microbatch. Transfers and
/// recomputations that the option doesn't have are removed. Missing operations are inserted: an offload right after the
/// forward, a reload and a recomputation right before the backward.
template <pipeline_graph Graph, class Operations>
[[nodiscard]] constexpr Operations follow_storage(const basic_problem<Graph>& p, const Operations& given,
                                                  const std::vector<std::size_t>& used) {
    return detail::storage_follower<Graph, Operations>{p, given, used}.run(given);
}

} // namespace optpipe
