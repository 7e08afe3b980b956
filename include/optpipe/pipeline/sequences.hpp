#pragma once

#include "optpipe/core/index.hpp"
#include "optpipe/core/quantity.hpp"
#include "optpipe/pipeline/problem.hpp"

#include <vector>

namespace optpipe {

/// The sequences of the step, in order. Each sequence is the list of its microbatches. A microbatch that isn't a slice
/// is a sequence with one element.
template <pipeline_graph Graph>
[[nodiscard]] constexpr std::vector<std::vector<microbatch>> sequences_of(const basic_problem<Graph>& p) {
    std::vector<std::vector<microbatch>> found;
    for (const microbatch m : p.graph.all_microbatches()) {
        if (!p.microbatches.slice_before(m)) found.emplace_back();
        found.back().push_back(m);
    }
    return found;
}

/// Duration of all computations on these microbatches, without recomputation.
template <pipeline_graph Graph>
[[nodiscard]] duration work_of(const basic_problem<Graph>& p, const std::vector<microbatch>& slices) {
    duration work{};
    for (const microbatch m : slices)
        for (const stage s : p.graph.all_stages())
            work += p.cost(s, m).work();
    return work;
}

} // namespace optpipe
