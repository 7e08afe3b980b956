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
#include <optional>
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

/// A problem, or the reason why it is invalid.
struct read_entry {
    std::optional<optpipe::problem> problem;
    std::string reason;
};

/// Throws if an entry is invalid that must not be, or if all are.
std::vector<read_entry> read_all(const std::vector<table_entry>& entries) {
    std::vector<read_entry> all;
    std::size_t invalid = 0;
    for (const auto& entry : entries) {
        try {
            all.push_back({read_problem(entry.file), ""});
        } catch (const optpipe::input_error& e) {
            if (!entry.may_be_invalid || ++invalid == entries.size()) throw;
            all.push_back({std::nullopt, e.violations().front().text()});
        }
    }
    return all;
}

/// For example "2.34 %"; without digits that are rounding alone.
std::string percent_text(double share) {
    constexpr double last_digit = 0.01;
    constexpr int digits = 4;
    return optpipe::format_number(last_digit * std::round(100.0 * share / last_digit), digits) + " %";
}

double gap_of(const planned_row& row) { return (*row.objective - row.bound) / *row.objective; }

std::string csv_of(const std::string& heading, const std::vector<table_entry>& entries,
                   const std::vector<planned_row>& rows) {
    auto text = csv_line({heading, "objective", "bound", "gap", "method", "seconds", "reason"});
    for (std::size_t i = 0; i < rows.size(); ++i) {
        const auto& row = rows[i];
        if (row.objective)
            text += csv_line({entries[i].name, csv_number(row.objective->value()), csv_number(row.bound.value()),
                              csv_number(gap_of(row)), row.method, csv_number(row.seconds), ""});
        else
            text += csv_line({entries[i].name, "", "", "", row.method, csv_number(row.seconds), row.reason});
    }
    return text;
}

void print(std::ostream& out, const std::string& heading, const std::vector<table_entry>& entries,
           const std::vector<planned_row>& rows) {
    constexpr int digits = 3;
    std::vector<optpipe::table_row> lines{{heading, "objective", "bound", "gap", "method", "seconds"}};
    for (std::size_t i = 0; i < rows.size(); ++i) {
        const auto& row = rows[i];
        const auto name = optpipe::printable(entries[i].name, 60);
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

int plan_table(const plan_options& options, const std::string& heading, const std::vector<table_entry>& entries) {
    refuse_single_outputs(options);
    std::vector<named_file> inputs;
    for (const auto& entry : entries)
        if (inputs.empty() || inputs.back().path != entry.file.path) inputs.push_back({"PROBLEM", entry.file.path});
    outputs files{inputs, {{"--csv", options.csv}}};
    const auto problems = read_all(entries);
    std::vector<planned_row> rows;
    int status = success;
    for (const auto& p : problems) {
        rows.push_back(p.problem ? plan_row(options, *p.problem) : planned_row{.reason = p.reason});
        if (!rows.back().objective) status = no_schedule;
        if (!rows.back().is_stopped) continue;
        status = stopped_by_signal;
        break;
    }
    files.write("--csv", [&] { return csv_of(heading, entries, rows); });
    if (!options.quiet) print(files.text(), heading, entries, rows);
    return files.status(status);
}

} // namespace program
