#pragma once

#include "optpipe/pipeline/problem.hpp"

#include <algorithm>
#include <chrono>
#include <cstddef>

namespace optpipe::detail {

/// How the final incumbent gets cheaper storage options (`with_cheaper_storage`).
struct cheaper_storage_parameters {
    /// Limit on the number of operations to place. The default corresponds to half a second at most.
    std::size_t effort = 5'000'000;
    /// Time to place one operation, in seconds. Measured with 32 ranks and 128 microbatches, including the copies of
    /// orders.
    double seconds_per_operation = 100e-9;
    /// Time by which the reduction may exceed the time limit if the search ends late. The time suffices on problems
    /// with some hundred stashes.
    std::chrono::duration<double> moment{0.02};
    /// The largest reserved share of the time limit, in (0, 1). A larger share shortens the search. Not tuned.
    double part = 0.05;
    /// Estimated number of operations of a microbatch on a stage.
    std::size_t operations_per_cell = 5;
    /// Estimated number of trials per cheaper option, including trials of several changes at once.
    std::size_t trials_per_option = 2;
};

/// The part of a time limit that is reserved for cheaper storage options.
inline std::chrono::duration<double> time_for_cheaper_storage(const problem& p, std::chrono::duration<double> limit) {
    constexpr cheaper_storage_parameters with;
    std::size_t options = 0;
    for (const stage s : p.graph.all_stages())
        options += p.storage_options(s) - 1;
    const auto microbatches = static_cast<double>(p.graph.microbatches());
    const auto operations = static_cast<double>(with.operations_per_cell * p.graph.stages()) * microbatches;
    const auto trials = static_cast<double>(with.trials_per_option * options) * microbatches;
    const double work = std::min(static_cast<double>(with.effort), trials * operations);
    return std::min(std::chrono::duration<double>{work * with.seconds_per_operation}, with.part * limit);
}

} // namespace optpipe::detail
