#pragma once

#include "optpipe/core/quantity.hpp"
#include "optpipe/pipeline/problem.hpp"
#include "optpipe/schedule/schedule.hpp"
#include "optpipe/schedule/time/measure.hpp"

#include <optional>
#include <string>

namespace optpipe {

/// A schedule with all that is derived from it, as the file formats and the tables show it.
struct schedule_report {
    std::string method;
    optpipe::schedule schedule;
    optpipe::measures measures;
    /// A proven lower bound on the objective of every valid schedule of the problem, if one is known.
    std::optional<duration> bound;
    /// The schedule has forwards alone (`plan_forwards`); the bound is for such.
    bool forward_only = false;

    /// (objective − bound) / objective, where there is a bound.
    [[nodiscard]] std::optional<double> gap() const {
        if (!bound || measures.objective <= duration{}) return std::nullopt;
        return (measures.objective - *bound) / measures.objective;
    }
};

} // namespace optpipe
