#include "commands.hpp"
#include "plan_table.hpp"
#include <optpipe/core/error.hpp>
#include <optpipe/core/format.hpp>
#include <optpipe/io/escape.hpp>

#include <charconv>
#include <cmath>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

namespace program {
namespace {

/// A field, and the values that it is to have.
struct field_values {
    std::string field;
    std::vector<std::string> values;
};

std::vector<std::string_view> split(std::string_view text, char separator) {
    std::vector<std::string_view> pieces;
    for (auto at = text.find(separator); at != std::string_view::npos; at = text.find(separator)) {
        pieces.push_back(text.substr(0, at));
        text.remove_prefix(at + 1);
    }
    pieces.push_back(text);
    return pieces;
}

std::optional<double> number_in(std::string_view text) {
    double number = 0.0;
    const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), number);
    const bool is_number = failure == std::errc{} && end == text.data() + text.size() && std::isfinite(number);
    return is_number ? std::optional{number} : std::nullopt;
}

/// The values of "20:80:10".
std::vector<std::string> values_in(double first, double last, double step, const std::string& change) {
    constexpr double most_values = 1000.0;
    constexpr double rounding = 1e-9; // so that 0:1:0.1 ends with 1
    constexpr int digits = 12;
    const double count = std::floor((last - first) / step + rounding) + 1.0;
    if (!(step > 0.0) || !(count >= 1.0 && count <= most_values))
        throw optpipe::error{"--set " + optpipe::printable(change, 60) +
                             ": must be FIRST:LAST:STEP with at most 1000 values in rising order"};
    std::vector<std::string> values;
    for (std::size_t i = 0; i < static_cast<std::size_t>(count); ++i)
        values.push_back(optpipe::format_number(first + static_cast<double>(i) * step, digits));
    return values;
}

/// The values of a change such as "memory_limit=20:80:10" or "memory_limit=20,40,80"; none if it has just one.
std::optional<field_values> values_of(const std::string& change) {
    const auto equals = change.find('=');
    if (equals == std::string::npos) return std::nullopt;
    const auto value = std::string_view{change}.substr(equals + 1);
    const auto range = split(value, ':');
    const auto listed = split(value, ',');
    const auto& pieces = range.size() == 3 ? range : listed;
    if (pieces.size() < 2) return std::nullopt;
    std::vector<double> numbers;
    for (const auto piece : pieces) {
        const auto number = number_in(piece);
        if (!number) return std::nullopt;
        numbers.push_back(*number);
    }
    field_values found{change.substr(0, equals), {}};
    if (range.size() == 3)
        found.values = values_in(numbers[0], numbers[1], numbers[2], change);
    else
        found.values.assign(listed.begin(), listed.end());
    return found;
}

} // namespace

int sweep(const plan_options& options) {
    std::optional<field_values> swept;
    problem_file fixed{options.problem.path, {}};
    for (const auto& change : options.problem.changes) {
        auto values = values_of(change);
        if (values && swept) throw optpipe::error{"--set: only one field can have several values"};
        if (values)
            swept = std::move(values);
        else
            fixed.changes.push_back(change);
    }
    if (!swept)
        throw optpipe::error{"--set: one field must have several values, as in memory_limit=20:80:10 or "
                             "memory_limit=20,40,80"};
    std::vector<table_entry> entries;
    for (const auto& value : swept->values) {
        entries.push_back({value, fixed, true}); // with too little memory, for example
        entries.back().file.changes.push_back(swept->field + "=" + value);
    }
    return plan_table(options, swept->field, entries);
}

} // namespace program
