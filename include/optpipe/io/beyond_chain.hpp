#pragma once

#include "optpipe/core/outcome.hpp"
#include "optpipe/pipeline/problem.hpp"

#include <algorithm>
#include <optional>
#include <string_view>

namespace optpipe::detail {

/// Why `system` can't run a problem; empty if it can. Megatron and PyTorch need a chain of stages with weight
/// gradients. Microbatches may have different costs.
[[nodiscard]] inline std::optional<refusal> beyond_chain(const problem& p, std::string_view system) {
    const auto refuse = [&](std::string_view what) { return refusal{refusal_reason::does_not_apply, {system, what}}; };
    if (!p.graph.is_chain()) return refuse(" has stages in a chain; these have other edges");
    if (!p.groups.empty()) return refuse(" has no groups of stages whose gradients wait for all of their forwards");
    const auto has_weights = [](const stage_costs& c) { return c.gradients == gradient_kind::full; };
    if (!std::all_of(p.costs.begin(), p.costs.end(), has_weights))
        return refuse(" has a backward with gradients of weights on every stage; some here have none");
    return std::nullopt;
}

} // namespace optpipe::detail
