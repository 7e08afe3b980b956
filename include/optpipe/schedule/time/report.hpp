#pragma once

#include "optpipe/core/quantity.hpp"
#include "optpipe/pipeline/problem.hpp"
#include "optpipe/schedule/schedule.hpp"
#include "optpipe/schedule/time/measure.hpp"

#include <optional>
#include <string>

namespace optpipe {

/// (objective − bound) / objective: the part of it that a better schedule might save. 0 where the objective is 0.
[[nodiscard]] constexpr double relative_gap(duration objective, duration bound) {
    return objective > duration{} ? (objective - bound) / objective : 0.0;
}

/// A schedule with all that is derived from it, as the file formats and the tables show it.
struct schedule_report {
    std::string method;
    optpipe::schedule schedule;
    optpipe::measures measures;
    /// A proven lower bound on the objective of every valid schedule of the problem, if one is known.
    std::optional<duration> bound;
    /// The schedule has forwards alone (`plan_forwards`); the bound is for such.
    bool forward_only = false;

    /// The relative gap, where there is a bound.
    [[nodiscard]] std::optional<double> gap() const {
        if (!bound || measures.objective <= duration{}) return std::nullopt;
        return relative_gap(measures.objective, *bound);
    }
};

} // namespace optpipe
