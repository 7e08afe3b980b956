#pragma once

#include "commands.hpp"

#include <nlohmann/json_fwd.hpp>

#include <iosfwd>
#include <optional>
#include <string>
#include <vector>

/// The rows of a sweep, and the file that keeps them from one run to the next.
namespace program {

/// The result of one way to plan for one value of the field.
struct sweep_row {
    std::string value;
    /// "plan", or the name of a builder.
    std::string by;
    /// The method whose schedule it is.
    std::string method{};
    /// Empty if there is no schedule.
    std::optional<double> objective{};
    double bound = 0.0;
    double seconds = 0.0;
    /// Why there is no schedule.
    std::string reason{};

    [[nodiscard]] double gap() const { return (*objective - bound) / *objective; }
};

/// Everything that rows depend on except value and way, as fields of the file: the problem with its changes, the swept
/// field, and the limits of the search. Rows of two sweeps are comparable if this is equal.
nlohmann::ordered_json setting_of(const std::string& field, const problem_file& fixed, const sweep_options& options);

/// A document of the format `optpipe.sweep/1`.
std::string rows_to_json(const nlohmann::ordered_json& setting, const std::vector<sweep_row>& rows);

/// Reads the rows of such a document. Throws `optpipe::input_error` if it is another document, or has another setting.
std::vector<sweep_row> parse_rows(const std::string& text, const std::string& source,
                                  const nlohmann::ordered_json& setting);

/// A line for each row.
std::string rows_to_csv(const std::string& field, const std::vector<sweep_row>& rows);

/// A table with a line for each value: all that is known of the one way to plan, or the objectives of several.
void print_rows(std::ostream& out, const std::string& field, const std::vector<std::string>& values,
                const std::vector<std::string>& ways, const std::vector<sweep_row>& rows);

} // namespace program
