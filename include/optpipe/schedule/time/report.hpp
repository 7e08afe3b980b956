#pragma once

#include "optpipe/core/quantity.hpp"
#include "optpipe/pipeline/problem.hpp"
#include "optpipe/schedule/schedule.hpp"
#include "optpipe/schedule/time/measure.hpp"

#include <optional>
#include <string>

namespace optpipe {

/// (objective − bound) / objective: the share of the objective that a better schedule might save. 0 if the objective is
/// 0.
[[nodiscard]] constexpr double relative_gap(duration objective, duration bound) {
    return objective > duration{} ? (objective - bound) / objective : 0.0;
}

/// A schedule and all derived quantities, as shown by the file formats and the tables.
struct schedule_report {
    std::string method;
    optpipe::schedule schedule;
    optpipe::measures measures;
    /// A proven lower bound on the objective of every valid schedule; empty if unknown.
    std::optional<duration> bound;
    /// Whether the schedule and its bound are for forwards alone (`plan_forwards`).
    bool forward_only = false;

    /// The relative gap, if there is a bound.
    [[nodiscard]] std::optional<double> gap() const {
        if (!bound || measures.objective <= duration{}) return std::nullopt;
        return relative_gap(measures.objective, *bound);
    }
};

} // namespace optpipe
