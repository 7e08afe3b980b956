#pragma once

#include "optpipe/core/index.hpp"
#include "optpipe/core/quantity.hpp"
#include "optpipe/pipeline/problem.hpp"
#include "optpipe/schedule/operation.hpp"

#include <algorithm>

namespace optpipe::cp {

/// The device memory that the operations of a stage acquire in a step, if each stash is kept.
[[nodiscard]] inline memory_size most_memory(const problem& p, stage s) {
    const auto stash = std::max(p.costs[s].activation, p.costs[s].weight_stash);
    if (p.is_simple()) return static_cast<double>(p.graph.microbatches()) * stash;
    memory_size all{};
    for (const microbatch m : p.graph.all_microbatches()) {
        all += p.microbatches.factors(s, m).memory * stash;
        all += memory_effect_beside_stash(p, forward(s, m)).acquired_at_start;
        if (p.costs[s].gradients != gradient_kind::none)
            all += memory_effect_beside_stash(p, backward_input(s, m)).acquired_at_start;
    }
    return all;
}

} // namespace optpipe::cp
