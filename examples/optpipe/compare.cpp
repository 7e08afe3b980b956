#include "commands.hpp"
#include "files.hpp"
#include "interruption.hpp"
#include "methods.hpp"
#include <optpipe/core/format.hpp>
#include <optpipe/io/escape.hpp>
#include <optpipe/io/text.hpp>
#include <optpipe/io/timeline.hpp>
#include <optpipe/schedule/bounds/structural_bounds.hpp>

#include <nlohmann/json.hpp>

#include <algorithm>
#include <string>
#include <vector>

namespace program {
namespace {

nlohmann::ordered_json to_json(const optpipe::comparison_row& row) {
    nlohmann::ordered_json entry{{"method", row.method}, {"planning_seconds", *row.planning_seconds}};
    if (!row.result) {
        entry["reason"] = row.reason;
        return entry;
    }
    const auto& m = *row.result;
    entry["objective"] = m.objective.value();
    entry["makespan"] = m.makespan.value();
    entry["span"] = m.span.value();
    entry["bubble_rate"] = m.bubble_rate;
    entry["offloads"] = m.offloads;
    entry["recompute_rate"] = m.recompute_rate;
    for (const auto peak : m.peak_memory)
        entry["peak_memory"].push_back(peak.value());
    return entry;
}

std::string to_json(const optpipe::problem& p, optpipe::duration bound,
                    const std::vector<optpipe::comparison_row>& rows) {
    nlohmann::ordered_json table{
        {"problem", p.name}, {"bound", bound.value()}, {"methods", nlohmann::ordered_json::array()}};
    for (const auto& row : rows)
        table["methods"].push_back(to_json(row));
    return table.dump(1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

} // namespace

int compare(const compare_options& options) {
    outputs files{{{"PROBLEM", options.problem.path}}, {{"--json", options.json}}};
    const auto p = read_problem(options.problem);
    const auto bound = optpipe::bounds_of(p).best();
    const interruption interrupted{true};
    std::vector<optpipe::comparison_row> rows;
    std::vector<optpipe::comparison_row> listed;
    std::string others;
    for (const auto& a : run_methods(p, [](std::string_view) { return true; }, {.stop = interrupted.token()})) {
        rows.push_back(row_of(p, a));
        if (a.result || a.result.why().reason != optpipe::refusal_reason::does_not_apply)
            listed.push_back(rows.back());
        else
            others += (others.empty() ? "" : ", ") + a.method;
    }
    files.write("--json", [&] { return to_json(p, bound, rows); });
    auto& out = files.text();
    optpipe::write_comparison(out, p, listed);
    if (!others.empty()) out << "not made for such a problem: " << others << '\n';
    out << "no schedule of this problem is better than " << optpipe::format_number(bound)
        << optpipe::detail::with_space(optpipe::printable(p.time_unit, 20)) << '\n';
    if (interrupted.is_requested()) {
        out << "stopped: the methods that aren't listed didn't run, or not to their end\n";
        return files.status(stopped_by_signal);
    }
    const bool any = std::any_of(rows.begin(), rows.end(), [](const auto& row) { return row.result.has_value(); });
    return files.status(any ? success : no_schedule);
}

} // namespace program
