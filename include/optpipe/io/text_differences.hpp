#pragma once

#include "optpipe/core/format.hpp"
#include "optpipe/io/escape.hpp"
#include "optpipe/io/text_table.hpp"
#include "optpipe/io/timeline.hpp"
#include "optpipe/pipeline/problem.hpp"
#include "optpipe/schedule/differences.hpp"
#include "optpipe/schedule/operation.hpp"

#include <cstddef>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

namespace optpipe {
namespace detail {

inline std::string signed_number(duration d) {
    constexpr int digits = 4;
    return (d > duration{} ? "+" : "") + format_number(d, digits);
}

inline table_row difference_cells(std::string name, const time_difference& d, std::string latest) {
    const auto count = static_cast<double>(d.count);
    return {std::move(name),
            std::to_string(d.count),
            format_number(d.planned / count),
            format_number(d.measured / count),
            signed_number(d.mean()),
            signed_number(d.worst),
            std::move(latest)};
}

} // namespace detail

/// A table of how long operations of each kind took, on average as planned and as measured, how much longer on average
/// and at most, and how late one of them started at most. Messages come last, where there were any.
inline void write_differences(std::ostream& out, const problem& p, const std::vector<kind_difference>& kinds,
                              const time_difference& messages = {}) {
    const auto unit = detail::in_brackets(printable(p.time_unit, 20));
    std::vector<table_row> rows{
        {"kind", "count", "planned" + unit, "measured" + unit, "longer, mean", "at most", "later, at most"}};
    for (const auto& d : kinds)
        rows.push_back(detail::difference_cells(std::string{spelling(d.kind)}, d, detail::signed_number(d.latest)));
    if (messages.count > 0) rows.push_back(detail::difference_cells("message", messages, "-"));
    write_table(out, rows);
}

} // namespace optpipe
