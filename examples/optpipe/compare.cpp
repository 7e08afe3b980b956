#include "commands.hpp"
#include "files.hpp"
#include "interruption.hpp"
#include "methods.hpp"
#include "plan_table.hpp"
#include "schedule_file.hpp"
#include <optpipe/core/error.hpp>
#include <optpipe/core/format.hpp>
#include <optpipe/core/stop_check.hpp>
#include <optpipe/io/escape.hpp>
#include <optpipe/io/text.hpp>
#include <optpipe/io/text_table.hpp>
#include <optpipe/io/timeline.hpp>
#include <optpipe/schedule/bounds/structural_bounds.hpp>

#include <nlohmann/json.hpp>

#include <algorithm>
#include <iostream>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

namespace program {
namespace {

nlohmann::ordered_json to_json(const optpipe::comparison_row& row) {
    nlohmann::ordered_json entry{{"method", row.method}};
    if (row.planning_seconds) entry["planning_seconds"] = *row.planning_seconds;
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
    nlohmann::ordered_json table{{"format", "optpipe.compare-result/1"},
                                 {"problem", p.name},
                                 {"bound", bound.value()},
                                 {"methods", nlohmann::ordered_json::array()}};
    for (const auto& row : rows)
        table["methods"].push_back(to_json(row));
    return table.dump(1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

/// A problem, and the result of each method.
struct compared_problem {
    std::string path;
    optpipe::problem problem;
    optpipe::duration bound{};
    std::vector<optpipe::comparison_row> rows{};
    /// The rows of the methods that are made for this kind of problem.
    std::vector<optpipe::comparison_row> listed{};
    /// The names of the other methods, separated by commas.
    std::string others{};
};

void run_all(compared_problem& compared, const compare_options& options, const std::stop_token& stop) {
    const auto& p = compared.problem;
    compared.bound = optpipe::bounds_of(p, optpipe::stop_check{stop}).best();
    method_options how;
    how.time_limit = options.time_limit;
    how.stop = stop;
    for (const auto& a : run_methods(
             p, [](std::string_view) { return true; }, how)) {
        compared.rows.push_back(row_of(p, a));
        if (a.result || a.result.why().reason != optpipe::refusal_reason::does_not_apply)
            compared.listed.push_back(compared.rows.back());
        else
            compared.others += (compared.others.empty() ? "" : ", ") + a.method;
    }
}

/// The row of a plan in a file.
optpipe::comparison_row row_of_plan(const optpipe::problem& p, const std::string& path) {
    auto report = valid_plan(p, read_schedule_for(p, path).document, path);
    report.method = "plan";
    return optpipe::make_comparison_row(report);
}

/// Null if no method has a schedule.
const optpipe::comparison_row* best_of(const std::vector<optpipe::comparison_row>& rows) {
    const optpipe::comparison_row* best = nullptr;
    for (const auto& row : rows)
        if (row.result && (!best || row.result->objective < best->result->objective)) best = &row;
    return best;
}

std::string bound_text(const compared_problem& compared) {
    return "no schedule of this problem is better than " + optpipe::format_number(compared.bound) +
           optpipe::detail::with_space(optpipe::printable(compared.problem.time_unit, 20)) + '\n';
}

void print_methods(std::ostream& out, const compared_problem& compared) {
    optpipe::write_comparison(out, compared.problem, compared.listed);
    if (!compared.others.empty()) out << "not made for such a problem: " << compared.others << '\n';
    out << bound_text(compared);
}

/// The table for a page of Markdown, below a line that says what the problem is.
void print_markdown(std::ostream& out, const compared_problem& compared) {
    const auto& p = compared.problem;
    auto lines = optpipe::comparison_table(p, compared.listed);
    if (!compared.others.empty()) lines.push_back({"not made for such a problem", compared.others});
    const auto name = optpipe::printable(p.name.empty() ? "problem" : p.name);
    out << "**" << optpipe::markdown_escaped(name) << "** (" << p.graph.stages() << " stages on " << p.graph.ranks()
        << " ranks, " << p.graph.microbatches() << " microbatches): " << bound_text(compared) << '\n';
    optpipe::write_markdown_table(out, lines);
}

/// A table with a row for each problem.
void print_problems(std::ostream& out, const std::vector<compared_problem>& all, bool markdown) {
    std::vector<optpipe::table_row> lines{{"problem", "best method", "objective", "bound", "methods with a schedule"}};
    for (const auto& each : all) {
        const auto with_schedule = std::count_if(each.listed.begin(), each.listed.end(),
                                                 [](const auto& row) { return row.result.has_value(); });
        const auto* best = best_of(each.rows);
        lines.push_back({name_of(each.path), best ? best->method : "none",
                         best ? optpipe::format_number(best->result->objective) : "",
                         optpipe::format_number(each.bound),
                         std::to_string(with_schedule) + " of " + std::to_string(each.listed.size())});
    }
    markdown ? optpipe::write_markdown_table(out, lines) : optpipe::write_table(out, lines);
}

void print(std::ostream& out, const std::vector<compared_problem>& all, bool markdown) {
    if (all.size() > 1) return print_problems(out, all, markdown);
    markdown ? print_markdown(out, all.front()) : print_methods(out, all.front());
}

std::string csv_of(const compared_problem& compared, const optpipe::comparison_row& row) {
    const auto seconds = row.planning_seconds ? csv_number(*row.planning_seconds) : "";
    if (!row.result)
        return csv_line(
            {compared.path, row.method, "", csv_number(compared.bound.value()), "", "", "", "", seconds, row.reason});
    const auto& m = *row.result;
    const auto peak = std::max_element(m.peak_memory.begin(), m.peak_memory.end());
    return csv_line({compared.path, row.method, csv_number(m.objective.value()), csv_number(compared.bound.value()),
                     csv_number(m.bubble_rate), std::to_string(m.offloads), csv_number(m.recompute_rate),
                     csv_number(peak->value()), seconds, ""});
}

/// A row for each problem and method.
std::string csv_of(const std::vector<compared_problem>& all) {
    auto text = csv_line({"problem", "method", "objective", "bound", "bubble_rate", "offloads", "recompute_rate",
                          "peak_memory", "seconds", "reason"});
    for (const auto& each : all)
        for (const auto& row : each.rows)
            text += csv_of(each, row);
    return text;
}

} // namespace

int compare(const compare_options& options) {
    std::vector<named_file> inputs;
    for (const auto& path : options.problems)
        inputs.push_back({"PROBLEM", path});
    if (!options.plan.empty()) inputs.push_back({"--plan", options.plan});
    outputs files{inputs, {{"--json", options.json}, {"--csv", options.csv}}};
    if (options.problems.size() > 1 && files.has("--json"))
        throw optpipe::error{"--json: takes one problem; --csv has the table of several"};
    if (options.problems.size() > 1 && !options.plan.empty())
        throw optpipe::error{"--plan: is a plan of one problem, and there are several"};
    std::vector<compared_problem> all;
    for (const auto& path : options.problems)
        all.push_back({path, read_problem({path, options.problem.changes})});
    std::optional<optpipe::comparison_row> beside;
    if (!options.plan.empty()) beside = row_of_plan(all.front().problem, options.plan);
    const interruption interrupted{true};
    for (auto& each : all)
        run_all(each, options, interrupted.token());
    if (beside) {
        all.front().rows.push_back(*beside);
        all.front().listed.push_back(*beside);
    }
    for (auto& each : all)
        if (const auto* best = best_of(each.rows)) each.bound = without_rounding(each.bound, best->result->objective);
    files.write("--json", [&] { return to_json(all.front().problem, all.front().bound, all.front().rows); });
    files.write("--csv", [&] { return csv_of(all); });
    auto& out = files.text();
    print(out, all, options.markdown);
    if (interrupted.is_requested()) {
        out << "stopped: the methods that aren't listed didn't run, or not to their end\n";
        return files.status(stopped_by_signal);
    }
    const bool have_schedules =
        std::all_of(all.begin(), all.end(), [](const auto& each) { return best_of(each.rows); });
    return files.status(have_schedules ? success : no_schedule);
}

} // namespace program
