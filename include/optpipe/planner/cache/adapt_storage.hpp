#pragma once

#include "optpipe/core/index.hpp"
#include "optpipe/pipeline/problem.hpp"
#include "optpipe/planner/cache/canonical.hpp"
#include "optpipe/schedule/operation.hpp"
#include "optpipe/schedule/rules/cells.hpp"
#include "optpipe/schedule/schedule.hpp"

#include <algorithm>
#include <cmath>
#include <compare>
#include <cstddef>
#include <utility>
#include <vector>

namespace optpipe {

using operation_sequence = std::vector<operation>;

/// The difference between two storage options: first in numbers, where a missing transfer counts as size 0 and time 0;
/// then in whether they have transfers.
struct option_difference {
    double numbers = 0.0;
    int operations = 0;
    friend constexpr auto operator<=>(const option_difference&, const option_difference&) = default;
};

[[nodiscard]] inline option_difference difference_of(const canonical_option& a, const canonical_option& b) {
    option_difference result{0.0, a.offloads() != b.offloads() ? 1 : 0};
    const auto x = a.numbers();
    const auto y = b.numbers();
    const auto finite = [](double value) { return std::isfinite(value) ? value : 0.0; };
    for (std::size_t i = 0; i < canonical_option::size; ++i)
        result.numbers += std::abs(finite(x[i]) - finite(y[i]));
    return result;
}

/// The position of the option that differs least; the first of several. Contract: `among` isn't empty.
[[nodiscard]] inline std::size_t most_similar(const canonical_options& among, const canonical_option& to) {
    std::size_t best = 0;
    for (std::size_t i = 1; i < among.size(); ++i)
        if (difference_of(among[i], to) < difference_of(among[best], to)) best = i;
    return best;
}

/// Replaces the storage options of the operations, from the lists `from`, by the most similar ones in the lists `to`.
/// Contract: the options exist in `from`, and the same stages have lists in both.
[[nodiscard]] inline operation_sequence translate_storage(operation_sequence all,
                                                          const std::vector<canonical_options>& from,
                                                          const std::vector<canonical_options>& to) {
    std::vector<std::vector<storage_index>> position(from.size());
    for (std::size_t s = 0; s < from.size(); ++s)
        for (const auto& option : from[s])
            position[s].push_back(static_cast<storage_index>(most_similar(to[s], option)));
    for (auto& op : all)
        op.storage = op.stage.position() < from.size() && !from[op.stage.position()].empty()
                         ? position[op.stage.position()][op.storage]
                         : storage_index{};
    return all;
}

namespace detail {

/// Makes an order follow the storage options of its forwards, in one pass.
class storage_follower {
public:
    storage_follower(const problem& p, const operation_sequence& all)
        : p_{p}, number_{p.graph}, cell_{p.graph}, is_there_(number_.size(), 0), used_(cell_.size(), 0) {
        for (const auto& op : all) {
            is_there_[number_(op)] = 1;
            if (op.kind == operation_kind::forward) used_[cell_(op)] = op.storage;
        }
    }

    [[nodiscard]] operation_sequence run(const operation_sequence& all) && {
        result_.reserve(all.size());
        for (const auto& op : all)
            append(op);
        return std::move(result_);
    }

private:
    void append(operation op) {
        const auto& list = p_.storage[op.stage];
        if (p_.is_plain(op.stage)) return result_.push_back(op);
        op.storage = used_[cell_(op)];
        const auto& stored = list[op.storage];
        if (is_transfer(op.kind) && !stored.offloads()) return;
        if (op.kind == operation_kind::recompute && !stored.recomputes()) return;
        const bool needs_stash = op.kind == operation_kind::recompute || is_gradient(op.kind);
        if (needs_stash && stored.offloads()) supply(sibling(op, operation_kind::reload));
        if (is_gradient(op.kind) && stored.recomputes()) supply(sibling(op, operation_kind::recompute));
        result_.push_back(op);
        if (op.kind == operation_kind::forward && stored.offloads()) supply(sibling(op, operation_kind::offload));
    }
    void supply(const operation& op) {
        auto& is_there = is_there_[number_(op)];
        if (!is_there) result_.push_back(op);
        is_there = 1;
    }

    const problem& p_;
    operation_numbering<any_graph> number_;
    cell_numbering cell_;
    std::vector<unsigned char> is_there_;
    std::vector<storage_index> used_;
    operation_sequence result_{};
};

} // namespace detail

/// The order `all`, with the storage option of its forward for each stage and microbatch. Transfers and recomputations
/// that the option doesn't have are removed. Missing ones are inserted where they change least, right after the forward
/// or right before the backward. An order with operations or options unknown to `p` stays unchanged.
[[nodiscard]] inline operation_sequence follow_storage(const problem& p, operation_sequence all) {
    if (!p.has_storage_options()) return all;
    const operation_numbering number{p.graph};
    const bool is_known = std::all_of(all.begin(), all.end(), [&](const operation& op) {
        return number.contains(op) && (p.is_plain(op.stage) || op.storage < p.storage[op.stage].size());
    });
    if (!is_known) return all;
    return detail::storage_follower{p, all}.run(all);
}

} // namespace optpipe
