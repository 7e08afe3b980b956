#pragma once

#include "optpipe/core/compiled.hpp"
#include "optpipe/pipeline/problem.hpp"
#include "optpipe/schedule/time/idle.hpp"
#include "optpipe/schedule/time/measure.hpp"

#include <iosfwd>

namespace optpipe {

/// Writes a table with each rank's compute time, and its idle time by cause (`sum_by_cause`). Causes that don't occur
/// are left out.
void write_idle(std::ostream& out, const problem& p, const measures& m, const per_rank<idle_sums>& sums);

} // namespace optpipe

#if OPTPIPE_DEFINES(io)
#include "optpipe/core/format.hpp"
#include "optpipe/io/escape.hpp"
#include "optpipe/io/text_table.hpp"

#include <algorithm>
#include <ostream>
#include <string>
#include <vector>

namespace optpipe {

OPTPIPE_INLINE void write_idle(std::ostream& out, const problem& p, const measures& m,
                               const per_rank<idle_sums>& sums) {
    std::vector<idle_cause> causes;
    for (const auto cause : all_idle_causes)
        if (std::any_of(sums.begin(), sums.end(), [&](const auto& own) { return own[cause] > duration{}; }))
            causes.push_back(cause);
    const auto unit = printable(p.time_unit, 20);
    std::vector<table_row> lines{{"rank", "computes" + (unit.empty() ? "" : " [" + unit + "]"), "idle"}};
    for (const auto cause : causes)
        lines.front().emplace_back(name_of(cause));
    for (const rank r : p.graph.all_ranks()) {
        lines.push_back({std::to_string(r.value()), format_number(m.busy[r]), format_number(sums[r].total())});
        for (const auto cause : causes)
            lines.back().push_back(sums[r][cause] > duration{} ? format_number(sums[r][cause]) : "");
    }
    write_table(out, lines);
}

} // namespace optpipe
#endif
