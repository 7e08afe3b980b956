#include "commands.hpp"
#include "methods.hpp"
#include <optpipe/optpipe.hpp>

#include <nlohmann/json.hpp>

#include <iostream>
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
    for (const auto peak : m.peak_memory)
        entry["peak_memory"].push_back(peak.value());
    return entry;
}

} // namespace

int compare(const compare_options& options) {
    const auto p = optpipe::read_problem(options.problem);
    const auto bound = optpipe::bounds_of(p).best();
    std::vector<optpipe::comparison_row> rows;
    std::vector<optpipe::comparison_row> listed;
    std::string others;
    for (const auto& a : run_methods(p, [](std::string_view) { return true; })) {
        rows.push_back(row_of(p, a));
        if (a.result || a.result.why().reason != optpipe::refusal_reason::does_not_apply)
            listed.push_back(rows.back());
        else
            others += (others.empty() ? "" : ", ") + a.method;
    }
    if (!options.json.empty()) {
        nlohmann::ordered_json table{
            {"problem", p.name}, {"bound", bound.value()}, {"methods", nlohmann::ordered_json::array()}};
        for (const auto& row : rows)
            table["methods"].push_back(to_json(row));
        optpipe::write_file(options.json, table.dump(1) + "\n");
    }
    optpipe::write_comparison(std::cout, p, listed);
    if (!others.empty()) std::cout << "not made for such a problem: " << others << '\n';
    std::cout << "no schedule of this problem is better than " << optpipe::format_number(bound) << '\n';
    const bool any = std::any_of(rows.begin(), rows.end(), [](const auto& row) { return row.result.has_value(); });
    return any ? success : no_schedule;
}

} // namespace program
