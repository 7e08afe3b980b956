#pragma once

#include "optpipe/core/index.hpp"
#include "optpipe/pipeline/graph.hpp"
#include "optpipe/pipeline/problem.hpp"

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

namespace optpipe {

/// The sequences of a step that have equally many slices, and cost the same, slice by slice, on every stage. A
/// microbatch that isn't a slice is a sequence of one.
struct equal_sequences {
    /// The slices of the first of them.
    std::vector<microbatch> slices{};
    std::size_t count = 0;
};

namespace detail {

template <pipeline_graph Graph>
bool cost_the_same(const basic_problem<Graph>& p, const std::vector<microbatch>& a, const std::vector<microbatch>& b) {
    if (a.size() != b.size()) return false;
    for (std::size_t i = 0; i < a.size(); ++i)
        for (const stage s : p.graph.all_stages())
            if (!(p.microbatches.factors(s, a[i]) == p.microbatches.factors(s, b[i]))) return false;
    return true;
}

} // namespace detail

/// All sequences of the step, each in one entry.
template <pipeline_graph Graph>
[[nodiscard]] std::vector<equal_sequences> sequences_by_cost(const basic_problem<Graph>& p) {
    if (p.microbatches.are_equal()) return {{{microbatch{0}}, p.graph.microbatches()}};
    std::vector<std::vector<microbatch>> sequences;
    for (const microbatch m : p.graph.all_microbatches()) {
        if (!p.microbatches.slice_before(m)) sequences.emplace_back();
        sequences.back().push_back(m);
    }
    std::vector<equal_sequences> found;
    for (auto& each : sequences) {
        const auto same = std::find_if(found.begin(), found.end(), [&](const equal_sequences& of) {
            return detail::cost_the_same(p, of.slices, each);
        });
        if (same == found.end())
            found.push_back({std::move(each), 1});
        else
            ++same->count;
    }
    return found;
}

} // namespace optpipe
