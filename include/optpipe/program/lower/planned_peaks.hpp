#pragma once

#include "optpipe/core/container.hpp"
#include "optpipe/pipeline/problem.hpp"
#include "optpipe/program/ir.hpp"
#include "optpipe/program/lower/options.hpp"
#include "optpipe/program/lower/plan_graph.hpp"
#include "optpipe/program/lower/stash_parts.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <tuple>
#include <vector>

namespace optpipe::detail {

/// Each rank's planned peak in one arena, in bytes. `copy_bytes` has the size of each copy of a value. Memory freed at
/// an instant can be taken at the same instant.
inline per_rank<std::size_t> planned_peaks(const problem& p, const plan_graph& plan, const stash_parts& sizes,
                                           memory_arena which, const std::vector<std::size_t>& copy_bytes,
                                           const lowering_options& options) {
    struct change {
        std::size_t instant;
        std::int64_t bytes;
    };
    per_rank<std::vector<change>> changes(p.graph.ranks());
    for (const auto& node : plan.nodes()) {
        if (node.is_message()) continue;
        auto& own = changes[p.rank_of(plan.operation_of(node).op.stage)];
        plan.for_each_operation(node, [&](const operation& op) {
            own.push_back({node.start, static_cast<std::int64_t>(sizes.acquired(op, which))});
            own.push_back({node.end, -static_cast<std::int64_t>(sizes.released(op, which))});
            for (const auto& link : plan.values().links_of(op)) {
                const auto& copy = plan.values().copies()[link.copy];
                if (copy.arena() != which || !is_made_by(copy, op)) continue;
                own.push_back({node.start, static_cast<std::int64_t>(copy_bytes[link.copy])});
                own.push_back({copy.until, -static_cast<std::int64_t>(copy_bytes[link.copy])});
            }
        });
        if (!node.is_pair() || which != memory_arena::device) continue;
        const auto taken = static_cast<std::int64_t>(options.rounded_bytes(node.memory));
        own.push_back({node.start, taken});
        own.push_back({node.end, -taken});
    }
    per_rank<std::size_t> peaks(p.graph.ranks());
    for (const rank r : p.graph.all_ranks()) {
        auto& own = changes[r];
        std::sort(own.begin(), own.end(), [](const change& a, const change& b) {
            return std::tie(a.instant, a.bytes) < std::tie(b.instant, b.bytes);
        });
        std::int64_t level = 0;
        std::int64_t peak = 0;
        for (const auto& [instant, bytes] : own)
            peak = std::max(peak, level += bytes);
        peaks[r] = static_cast<std::size_t>(peak);
    }
    return peaks;
}

} // namespace optpipe::detail
