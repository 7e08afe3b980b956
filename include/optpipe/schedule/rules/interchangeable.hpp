#pragma once

#include "optpipe/core/index.hpp"
#include "optpipe/pipeline/problem.hpp"

#include <algorithm>
#include <optional>
#include <vector>

namespace optpipe {
namespace detail {

template <pipeline_graph Graph>
[[nodiscard]] bool have_equal_factors(const basic_problem<Graph>& p, microbatch a, microbatch b) {
    for (const stage s : p.graph.all_stages())
        if (p.microbatches.factors(s, a) != p.microbatches.factors(s, b)) return false;
    return true;
}

/// Whether the microbatches agree one by one, from these two on, until both sequences end.
template <pipeline_graph Graph, class Next>
[[nodiscard]] bool agree(const basic_problem<Graph>& p, std::optional<microbatch> a, std::optional<microbatch> b,
                         const Next& next) {
    for (; a && b; a = next(*a), b = next(*b))
        if (!have_equal_factors(p, *a, *b)) return false;
    return !a && !b;
}

template <pipeline_graph Graph>
[[nodiscard]] bool are_interchangeable(const basic_problem<Graph>& p, microbatch a, microbatch b) {
    const auto& all = p.microbatches;
    if (all.are_equal()) return true;
    return agree(p, a, b, [&](microbatch m) { return all.slice_before(m); }) &&
           agree(p, a, b, [&](microbatch m) { return all.slice_after(m); });
}

} // namespace detail

/// The microbatches that differ in nothing but their names: they have the same factors, and the same place in sequences
/// whose slices have the same factors, one by one. Every microbatch is in one list; each list is in ascending order.
template <pipeline_graph Graph>
[[nodiscard]] std::vector<std::vector<microbatch>> interchangeable_microbatches(const basic_problem<Graph>& p) {
    std::vector<std::vector<microbatch>> lists;
    for (const microbatch m : p.graph.all_microbatches()) {
        const auto same = std::find_if(lists.begin(), lists.end(), [&](const auto& list) {
            return detail::are_interchangeable(p, list.front(), m);
        });
        (same == lists.end() ? lists.emplace_back() : *same).push_back(m);
    }
    return lists;
}

} // namespace optpipe
