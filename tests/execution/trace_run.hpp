#pragma once

#include "execution/trace_executor.hpp"
#include "optpipe/execution/error.hpp"
#include "optpipe/execution/measured.hpp"
#include "optpipe/execution/run.hpp"
#include "optpipe/program/ir.hpp"

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

namespace optpipe::testing {

/// The results of running programs on virtual time.
struct trace_result {
    /// The failure; empty if the programs ended.
    std::optional<execution_error> failed;
    std::vector<rank_times> times;
};

/// Runs one step of programs on virtual time, on this thread. `model_of(rank)` is a stage model. Programs that aren't
/// sound may not end; then the result reports where they are stuck.
template <class ModelOf>
[[nodiscard]] trace_result trace(std::span<const rank_program> programs, trace_costs costs, ModelOf model_of) {
    using model = std::remove_reference_t<decltype(model_of(rank{}))>;
    trace_world all{programs.size(), std::move(costs)};
    std::vector<std::unique_ptr<trace_executor>> executors;
    std::vector<std::unique_ptr<runner<trace_executor, model>>> runners;
    for (const rank r : index_range<rank>{programs.size()}) {
        executors.push_back(std::make_unique<trace_executor>(all, r));
        runners.push_back(
            std::make_unique<runner<trace_executor, model>>(programs[r.position()], *executors.back(), model_of(r)));
    }
    for (auto& each : runners)
        each->issue();
    trace_result result;
    if (!all.play()) all.give_up();
    result.failed = all.failed();
    for (std::size_t r = 0; r < programs.size(); ++r)
        result.times.push_back({&programs[r], runners[r]->times()});
    return result;
}

} // namespace optpipe::testing
