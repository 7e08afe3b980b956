#pragma once

#include "optpipe/core/compiled.hpp"
#include "optpipe/pipeline/problem.hpp"
#include "optpipe/schedule/time/differences.hpp"

#include <iosfwd>
#include <vector>

namespace optpipe {

/// Writes a table with a row for each kind of operation. The columns are the planned and measured mean duration, the
/// mean and largest excess, and the longest delay of a start. The last row is for messages, if there are any.
void write_differences(std::ostream& out, const problem& p, const std::vector<kind_difference>& kinds,
                       const time_difference& messages = {});

} // namespace optpipe

#if OPTPIPE_DEFINES(io)
#include "optpipe/core/format.hpp"
#include "optpipe/io/escape.hpp"
#include "optpipe/io/text_table.hpp"
#include "optpipe/io/timeline.hpp"
#include "optpipe/schedule/operation.hpp"

#include <cmath>
#include <cstddef>
#include <optional>
#include <ostream>
#include <string>
#include <utility>

namespace optpipe {
namespace detail {

/// Formats `difference` with its sign. A difference that is negligible beside `whole` is written as "0".
inline std::string difference_text(duration difference, duration whole) {
    constexpr double matters = 1e-4;
    constexpr int digits = 4;
    if (std::abs(difference.value()) <= matters * whole.value()) return "0";
    return (difference > duration{} ? "+" : "") + format_number(difference, digits);
}

inline table_row difference_cells(std::string name, const time_difference& d, std::optional<duration> latest) {
    const auto count = static_cast<double>(d.count);
    const auto planned = d.planned / count;
    return {std::move(name),
            std::to_string(d.count),
            format_number(planned),
            format_number(d.measured / count),
            difference_text(d.mean(), planned),
            difference_text(d.worst, planned),
            latest ? difference_text(*latest, planned) : "-"};
}

} // namespace detail

OPTPIPE_INLINE void write_differences(std::ostream& out, const problem& p, const std::vector<kind_difference>& kinds,
                                      const time_difference& messages) {
    const auto unit = detail::in_brackets(printable(p.time_unit, 20));
    std::vector<table_row> rows{
        {"kind", "count", "planned" + unit, "measured" + unit, "mean excess", "max excess", "max delay"}};
    for (const auto& d : kinds)
        rows.push_back(detail::difference_cells(std::string{spelling(d.kind)}, d, d.latest));
    if (messages.count > 0) rows.push_back(detail::difference_cells("message", messages, std::nullopt));
    write_table(out, rows);
}

} // namespace optpipe
#endif
