#pragma once

#include "optpipe/core/compiled.hpp"
#include "optpipe/pipeline/problem.hpp"
#include "optpipe/schedule/profile/cost_profile.hpp"
#include "optpipe/schedule/profile/drift.hpp"

#include <iosfwd>
#include <vector>

namespace optpipe {

/// Writes the number of measured steps, and a table of operations and messages. The columns are the planned and median
/// durations, the median's confidence interval, and the difference. Contract: the profile belongs to this problem
/// (`profile_violations`).
void write_profile(std::ostream& out, const problem& p, const cost_profile& profile);

/// Writes one line per cost that has drifted from the plan.
void write_drift(std::ostream& out, const std::vector<drifted_cost>& drifted);

} // namespace optpipe

#if OPTPIPE_DEFINES(io)
#include "optpipe/core/format.hpp"
#include "optpipe/io/escape.hpp"
#include "optpipe/io/text_table.hpp"
#include "optpipe/io/timeline.hpp"

#include <cmath>
#include <ostream>
#include <string>

namespace optpipe {
namespace detail {

template <class Key>
void add_profile_rows(std::vector<table_row>& rows, const problem& p,
                      const std::vector<cost_estimate<Key>>& estimates) {
    constexpr int digits = 4;
    for (const auto& [key, e] : estimates) {
        const auto planned = planned_time(p, key);
        rows.push_back({printable(to_string(p, key), 60), std::to_string(e.count), std::to_string(e.outliers),
                        format_number(planned, digits), format_number(e.median, digits),
                        format_number(e.low, digits) + " to " + format_number(e.high, digits),
                        percent(std::floor(1000.0 * e.confidence) / 1000.0), format_number(e.spread, digits),
                        planned > duration{} ? signed_percent(e.median / planned - 1.0) : "-"});
    }
}

} // namespace detail

OPTPIPE_INLINE void write_profile(std::ostream& out, const problem& p, const cost_profile& profile) {
    const auto steps = profile.steps();
    const auto warm_up = profile.warm_up_steps();
    out << printable(p.name.empty() ? "problem" : p.name) << ": " << steps << (steps == 1 ? " step" : " steps")
        << ", the first " << warm_up << " left out as warm-up (" << (profile.given_warm_up() ? "given" : "found")
        << ")\n\n";
    const auto unit = detail::in_brackets(printable(p.time_unit, 20));
    std::vector<table_row> rows{{"operation", "count", "outliers", "planned" + unit, "median" + unit, "interval",
                                 "confidence", "spread", "change"}};
    detail::add_profile_rows(rows, p, profile.operations());
    detail::add_profile_rows(rows, p, profile.messages());
    write_table(out, rows);
}

OPTPIPE_INLINE void write_drift(std::ostream& out, const std::vector<drifted_cost>& drifted) {
    for (const auto& each : drifted)
        out << "drifted: " << printable(describe(each), 200) << '\n';
}

} // namespace optpipe
#endif
