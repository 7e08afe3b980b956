#include "plan_table.hpp"

#include "files.hpp"
#include "plan_output.hpp"
#include <optpipe/core/error.hpp>
#include <optpipe/core/format.hpp>
#include <optpipe/io/escape.hpp>
#include <optpipe/io/text_table.hpp>

#include <cmath>
#include <cstddef>
#include <iostream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace program {
namespace {

/// Refuses the options of a single plan.
void refuse_single_outputs(const plan_options& options) {
    const std::pair<const char*, bool> given[]{
        {"--out", !options.files.schedule.empty()}, {"--svg", !options.files.svg.empty()},
        {"--html", !options.files.html.empty()},    {"--trace", !options.files.trace.empty()},
        {"--start", !options.start.empty()},        {"--json", options.json},
    };
    for (const auto& [name, is_given] : given)
        if (is_given)
            throw optpipe::error{std::string{name} + ": belongs to the plan of one problem; --csv writes the table"};
}

double gap_of(const planned_row& row) { return (*row.objective - row.bound) / *row.objective; }

std::string csv_of(const std::vector<std::string>& names, const std::vector<planned_row>& rows) {
    auto text = csv_line({"problem", "objective", "bound", "gap", "method", "seconds", "reason"});
    for (std::size_t i = 0; i < rows.size(); ++i) {
        const auto& row = rows[i];
        if (row.objective)
            text += csv_line({names[i], csv_number(row.objective->value()), csv_number(row.bound.value()),
                              csv_number(gap_of(row)), row.method, csv_number(row.seconds), ""});
        else
            text += csv_line({names[i], "", "", "", row.method, csv_number(row.seconds), row.reason});
    }
    return text;
}

void print(std::ostream& out, const std::vector<std::string>& names, const std::vector<planned_row>& rows) {
    constexpr int digits = 3;
    std::vector<optpipe::table_row> lines{{"problem", "objective", "bound", "gap", "method", "seconds"}};
    for (std::size_t i = 0; i < rows.size(); ++i) {
        const auto& row = rows[i];
        const auto name = optpipe::printable(names[i], 60);
        if (row.objective)
            lines.push_back({name, optpipe::format_number(*row.objective), optpipe::format_number(row.bound),
                             percent_text(gap_of(row)), row.method, optpipe::format_number(row.seconds, digits)});
        else
            lines.push_back({name, optpipe::printable(row.reason, 400)});
    }
    optpipe::write_table(out, lines);
}

} // namespace

std::string csv_line(const std::vector<std::string>& cells) {
    std::string line;
    for (const auto& cell : cells) {
        line += line.empty() && &cell == &cells.front() ? "" : ",";
        if (cell.find_first_of(",\"\r\n") == std::string::npos) {
            line += cell;
            continue;
        }
        line += '"';
        for (const char c : cell)
            line += c == '"' ? std::string{"\"\""} : std::string{c};
        line += '"';
    }
    return line + '\n';
}

std::string csv_number(double value) {
    constexpr int digits = 15;
    return optpipe::format_number(value, digits);
}

std::string percent_text(double share) {
    constexpr double last_digit = 0.01; // further digits are rounding alone
    constexpr int digits = 4;
    return optpipe::format_number(last_digit * std::round(100.0 * share / last_digit), digits) + " %";
}

int plan_table(const plan_options& options) {
    refuse_single_outputs(options);
    std::vector<named_file> inputs;
    for (const auto& path : options.problems)
        inputs.push_back({"PROBLEM", path});
    outputs files{inputs, {{"--csv", options.csv}}};
    std::vector<optpipe::problem> problems;
    for (const auto& path : options.problems)
        problems.push_back(read_problem({path, options.problem.changes}));
    const interruption interrupted{!options.quiet};
    std::vector<planned_row> rows;
    int status = success;
    for (const auto& p : problems) {
        rows.push_back(plan_row(options, p, interrupted));
        if (!rows.back().objective) status = no_schedule;
        if (!interrupted.is_requested()) continue;
        status = stopped_by_signal;
        break;
    }
    files.write("--csv", [&] { return csv_of(options.problems, rows); });
    if (!options.quiet) print(files.text(), options.problems, rows);
    return files.status(status);
}

} // namespace program
