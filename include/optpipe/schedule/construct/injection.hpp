#pragma once

#include "optpipe/core/compiled.hpp"
#include "optpipe/pipeline/problem.hpp"
#include "optpipe/schedule/operation.hpp"
#include "optpipe/schedule/schedule.hpp"

#include <cstddef>
#include <optional>
#include <vector>

namespace optpipe {

/// The order in which microbatches enter the pipeline, and the order in which their gradients come back. The gradients
/// of a sequence's slices come back in reverse.
struct injection {
    std::vector<microbatch> forwards{};
    std::vector<microbatch> gradients{};
    /// The largest number of slices of a sequence.
    std::size_t most_slices = 1;

    injection() = default;
    /// The sequences enter the pipeline in the order of the list. Each sequence lists its slices in order.
    explicit injection(const std::vector<std::vector<microbatch>>& sequences);
};

namespace detail {

/// The operation in the form that its stage can run. For example, I replaces B on a stage with frozen weights. Empty if
/// the stage doesn't run the operation in any form.
template <pipeline_graph Graph>
[[nodiscard]] constexpr std::optional<operation> possible_form(const basic_problem<Graph>& p, operation op) {
    if (op.kind == operation_kind::backward && p.costs[op.stage].gradients == gradient_kind::input)
        op.kind = operation_kind::backward_input;
    return is_possible(p, op) ? std::optional{op} : std::nullopt;
}

} // namespace detail

/// Replaces the microbatch numbers in `positions` by microbatches of `entering`. In `positions`, the number of a
/// microbatch is its position in the order of injection. Number i becomes `entering.forwards[i]` in forwards, and
/// `entering.gradients[i]` in all other operations.
template <pipeline_graph Graph>
[[nodiscard]] basic_order<Graph> inject(const basic_problem<Graph>& p, const injection& entering,
                                        const basic_order<Graph>& positions) {
    basic_order<Graph> result{p.graph, {}};
    result.operations.reserve(positions.operations.size());
    for (auto op : positions.operations) {
        const auto& list = op.kind == operation_kind::forward ? entering.forwards : entering.gradients;
        op.microbatch = list[op.microbatch.position()];
        if (const auto form = detail::possible_form(p, op)) result.operations.push_back(*form);
    }
    return result;
}

} // namespace optpipe

#if OPTPIPE_DEFINES(schedule)
#include <algorithm>

namespace optpipe {

OPTPIPE_INLINE injection::injection(const std::vector<std::vector<microbatch>>& sequences) {
    for (const auto& slices : sequences) {
        forwards.insert(forwards.end(), slices.begin(), slices.end());
        gradients.insert(gradients.end(), slices.rbegin(), slices.rend());
        most_slices = std::max(most_slices, slices.size());
    }
}

} // namespace optpipe
#endif
