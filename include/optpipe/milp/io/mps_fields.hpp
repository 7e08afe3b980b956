#pragma once

#include "optpipe/core/error.hpp"
#include "optpipe/milp/expression.hpp"
#include "optpipe/milp/io/read_text.hpp"

#include <array>
#include <charconv>
#include <cmath>
#include <cstddef>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

namespace optpipe::milp {

namespace detail {

/// The position of a line, for messages.
struct text_place {
    const std::string* source;
    std::size_t line;

    [[noreturn]] void refuse(std::string reason) const {
        throw input_error{*source, {{"line " + std::to_string(line), std::move(reason)}}};
    }
};

inline std::string in_quotes(std::string_view name) { return "'" + shown(name) + "'"; }

[[nodiscard]] inline bool is_blank(char c) { return c == ' ' || c == '\t' || c == '\r'; }

[[nodiscard]] inline std::string_view trimmed(std::string_view text) {
    while (!text.empty() && is_blank(text.front()))
        text.remove_prefix(1);
    while (!text.empty() && is_blank(text.back()))
        text.remove_suffix(1);
    return text;
}

[[nodiscard]] inline std::vector<std::string_view> words_of(std::string_view text) {
    std::vector<std::string_view> words;
    for (text = trimmed(text); !text.empty(); text = trimmed(text)) {
        std::size_t length = 0;
        while (length < text.size() && !is_blank(text[length]))
            ++length;
        words.push_back(text.substr(0, length));
        text.remove_prefix(length);
    }
    return words;
}

/// The fields of a data line: a code, a name, and one or two names with a number each.
struct mps_fields {
    std::string_view code;
    std::string_view name;
    struct {
        std::string_view name;
        std::string_view number;
    } pairs[2];
};

[[nodiscard]] inline mps_fields fixed_fields(std::string_view line) {
    constexpr struct {
        std::size_t first;
        std::size_t length;
    } columns[] = {{1, 2}, {4, 8}, {14, 8}, {24, 12}, {39, 8}, {49, 12}};
    std::array<std::string_view, std::size(columns)> field{};
    for (std::size_t i = 0; i < field.size(); ++i)
        if (columns[i].first < line.size()) field[i] = trimmed(line.substr(columns[i].first, columns[i].length));
    return {field[0], field[1], {{field[2], field[3]}, {field[4], field[5]}}};
}

/// Reads a name and pairs, or only pairs: an even number of words means that the name is left out.
[[nodiscard]] inline mps_fields free_fields(std::string_view line, const text_place& place) {
    constexpr std::size_t most_words = 5;
    const auto words = words_of(line);
    if (words.size() < 2 || words.size() > most_words)
        place.refuse("has " + std::to_string(words.size()) + " fields, must have 2 to 5");
    mps_fields fields;
    std::size_t next = words.size() % 2;
    if (next == 1) fields.name = words.front();
    for (auto& pair : fields.pairs) {
        if (next == words.size()) break;
        pair = {words[next], words[next + 1]};
        next += 2;
    }
    return fields;
}

/// Reads a double as MPS files spell it: also "+1", "1D3" and, if `or_infinite`, "Inf" and numbers of at least 1e20.
[[nodiscard]] inline double mps_number(std::string_view text, const text_place& place, bool or_infinite = false) {
    constexpr double counts_as_infinite = 1e20;
    std::string digits{text.starts_with('+') ? text.substr(1) : text};
    for (auto& c : digits)
        if (c == 'D' || c == 'd') c = 'e';
    double value = 0.0;
    const auto* const end = digits.data() + digits.size();
    if (digits.size() < text.size() && digits.starts_with('-')) place.refuse(in_quotes(text) + " is not a number");
    const auto [stop, error] = std::from_chars(digits.data(), end, value);
    if (error == std::errc::result_out_of_range) place.refuse(in_quotes(text) + " is out of the range of numbers");
    if (error != std::errc{} || stop != end || std::isnan(value)) place.refuse(in_quotes(text) + " is not a number");
    if (std::abs(value) < counts_as_infinite) return value;
    if (!or_infinite) place.refuse(in_quotes(text) + " is too large");
    return std::copysign(infinity, value);
}

} // namespace detail
} // namespace optpipe::milp
