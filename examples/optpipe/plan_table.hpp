#pragma once

#include "commands.hpp"
#include "interruption.hpp"
#include <optpipe/core/quantity.hpp>
#include <optpipe/pipeline/problem.hpp>

#include <optional>
#include <string>
#include <vector>

/// Plans of several problems as a table with a row for each.
namespace program {

struct planned_row {
    std::string method{};
    /// Empty if there is no schedule.
    std::optional<optpipe::duration> objective{};
    optpipe::duration bound{};
    double seconds = 0.0;
    /// Why there is no schedule.
    std::string reason{};
};

/// Plans a problem as `plan` does, and keeps what a row of a table has.
planned_row plan_row(const plan_options& options, const optpipe::problem& p, const interruption& interrupted);

/// Plans all problems of the options. Prints the table, and writes it as CSV (`plan_options::csv`). Returns the exit
/// status: `no_schedule` if some problem has none.
int plan_table(const plan_options& options);

/// A line of a CSV file.
std::string csv_line(const std::vector<std::string>& cells);
/// The number with all of its digits.
std::string csv_number(double value);
/// For example "2.34 %".
std::string percent_text(double share);

} // namespace program
