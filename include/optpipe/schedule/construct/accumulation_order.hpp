#pragma once

#include "optpipe/core/compiled.hpp"
#include "optpipe/core/container.hpp"
#include "optpipe/core/index.hpp"
#include "optpipe/pipeline/problem.hpp"
#include "optpipe/schedule/schedule.hpp"

#include <optional>
#include <vector>

namespace optpipe {

/// The order in which each stage adds up its microbatches' weight gradients. Floating-point sums depend on the order.
/// Schedules with the same order train to bitwise identical results.
using accumulation_order = per_stage<std::vector<microbatch>>;

[[nodiscard]] accumulation_order accumulation_order_of(const schedule& s);

/// A valid schedule with the accumulation order `wanted`. The order is reached by swapping the microbatches of weight
/// gradients of the same stage. A swap keeps all times if all stashes of the stage use one storage option. Empty if
/// swaps can't reach the wanted order.
[[nodiscard]] std::optional<schedule> with_accumulation_order(const problem& p, schedule s,
                                                              const accumulation_order& wanted);

} // namespace optpipe

#if OPTPIPE_DEFINES(schedule)
#include "optpipe/schedule/operation.hpp"
#include "optpipe/schedule/time/evaluate.hpp"
#include "optpipe/schedule/time/validate.hpp"

#include <algorithm>
#include <cstddef>

namespace optpipe {
namespace detail {

/// For each stage, the positions in `s.operations` of its weight gradients and full backwards, by start.
[[nodiscard]] inline per_stage<std::vector<std::size_t>> weight_gradients_of(const schedule& s) {
    per_stage<std::vector<std::size_t>> found(s.graph.stages());
    for (std::size_t i = 0; i < s.operations.size(); ++i)
        if (const auto& op = s.operations[i].op; is_weight_gradient(op.kind)) found[op.stage].push_back(i);
    for (auto& own : found)
        std::sort(own.begin(), own.end(),
                  [&](std::size_t a, std::size_t b) { return starts_before(s.operations[a], s.operations[b]); });
    return found;
}

} // namespace detail

OPTPIPE_INLINE accumulation_order accumulation_order_of(const schedule& s) {
    accumulation_order result(s.graph.stages());
    const auto positions = detail::weight_gradients_of(s);
    for (const stage at : s.graph.all_stages())
        for (const auto i : positions[at])
            result[at].push_back(s.operations[i].op.microbatch);
    return result;
}

OPTPIPE_INLINE std::optional<schedule> with_accumulation_order(const problem& p, schedule s,
                                                               const accumulation_order& wanted) {
    OPTPIPE_EXPECT(wanted.size() == s.graph.stages(), "with_accumulation_order: an order for each stage");
    const auto positions = detail::weight_gradients_of(s);
    bool changed = false;
    for (const stage at : s.graph.all_stages()) {
        if (positions[at].size() != wanted[at].size()) return std::nullopt;
        std::vector<storage_index> storage(s.graph.microbatches());
        for (const auto i : positions[at])
            storage[s.operations[i].op.microbatch.position()] = s.operations[i].op.storage;
        for (std::size_t k = 0; k < wanted[at].size(); ++k) {
            auto& op = s.operations[positions[at][k]].op;
            if (op.microbatch == wanted[at][k]) continue;
            if (op.kind == operation_kind::backward) return std::nullopt;
            op.microbatch = wanted[at][k];
            op.storage = storage[op.microbatch.position()];
            changed = true;
        }
    }
    if (!changed || is_valid(p, s)) return s;
    auto timed = time_order(p, order_of(s));
    if (!timed) return std::nullopt;
    return *std::move(timed);
}

} // namespace optpipe
#endif
