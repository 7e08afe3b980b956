#pragma once

#include "optpipe/core/compiled.hpp"
#include "optpipe/core/outcome.hpp"
#include "optpipe/pipeline/problem.hpp"
#include "optpipe/schedule/schedule.hpp"

#include <cstddef>

namespace optpipe {

/// The largest number of distinct pairs on a rank. Pairs are the same if they agree in the stage of the forward, the
/// stage of the backward and the kind of the backward. A compiler makes one graph for all equal pairs.
[[nodiscard]] std::size_t most_distinct_pairs(const schedule& s);

/// Splits some of a schedule's pairs. Each rank keeps the `limit` distinct pairs that save most time. All other pairs
/// are split: the forward runs before the backward. Contract: `s` is valid.
[[nodiscard]] outcome<schedule> with_most_distinct_pairs(const problem& p, const schedule& s, std::size_t limit);

} // namespace optpipe

#if OPTPIPE_DEFINES(schedule)
#include "optpipe/schedule/operation.hpp"
#include "optpipe/schedule/pair.hpp"
#include "optpipe/schedule/time/simulate.hpp"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

namespace optpipe {
namespace detail {

/// The stages of a pair's forward and backward, and the kind of the backward. Pairs with the same key aren't distinct.
using pair_key = std::tuple<stage, stage, operation_kind>;

[[nodiscard]] inline pair_key key_of(const operation& f, const operation& b) { return {f.stage, b.stage, b.kind}; }

/// For each rank and key, the time saved by all pairs with this key.
[[nodiscard]] inline per_rank<std::map<pair_key, duration>> savings_of_pairs(const problem& p, const schedule& s) {
    per_rank<std::map<pair_key, duration>> saved(p.graph.ranks());
    for_each_pair(s, [&](const timed_operation& f, const timed_operation& b) {
        saved[p.rank_of(f.op.stage)][key_of(f.op, b.op)] +=
            duration_of(p, f.op) + duration_of(p, b.op) - (f.end - f.start);
    });
    return saved;
}

/// The `limit` keys per rank that save most time.
[[nodiscard]] inline std::vector<pair_key> keys_to_keep(const problem& p, const schedule& s, std::size_t limit) {
    std::vector<pair_key> kept;
    for (const auto& of_rank : savings_of_pairs(p, s)) {
        std::vector<std::pair<duration, pair_key>> all;
        for (const auto& [key, saved] : of_rank)
            all.emplace_back(saved, key);
        std::stable_sort(all.begin(), all.end(), [](const auto& a, const auto& b) { return a.first > b.first; });
        for (std::size_t i = 0; i < std::min(limit, all.size()); ++i)
            kept.push_back(all[i].second);
    }
    std::sort(kept.begin(), kept.end());
    return kept;
}

/// The order of a schedule, in which only the pairs in `kept` remain pairs.
[[nodiscard]] inline order order_with_pairs(const problem& p, const schedule& s, const std::vector<pair_key>& kept) {
    auto all = order_of(s);
    per_rank<operation*> open(p.graph.ranks(), nullptr);
    for (auto& op : all.operations) {
        if (!op.is_paired) continue;
        auto& first = open[p.rank_of(op.stage)];
        if (!first) {
            first = &op;
            continue;
        }
        auto& f = first->kind == operation_kind::forward ? *first : op;
        auto& b = first->kind == operation_kind::forward ? op : *first;
        if (!std::binary_search(kept.begin(), kept.end(), key_of(f, b))) {
            f.is_paired = b.is_paired = false;
            if (first->kind != operation_kind::forward) std::swap(*first, op);
        }
        first = nullptr;
    }
    return all;
}

} // namespace detail

OPTPIPE_INLINE std::size_t most_distinct_pairs(const schedule& s) {
    per_rank<std::set<detail::pair_key>> found(s.graph.ranks());
    std::size_t most = 0;
    for_each_pair(s, [&](const timed_operation& f, const timed_operation& b) {
        auto& own = found[s.graph.rank_of(f.op.stage)];
        own.insert(detail::key_of(f.op, b.op));
        most = std::max(most, own.size());
    });
    return most;
}

OPTPIPE_INLINE outcome<schedule> with_most_distinct_pairs(const problem& p, const schedule& s, std::size_t limit) {
    if (most_distinct_pairs(s) <= limit) return s;
    return simulate(p, detail::order_with_pairs(p, s, detail::keys_to_keep(p, s, limit)));
}

} // namespace optpipe
#endif
