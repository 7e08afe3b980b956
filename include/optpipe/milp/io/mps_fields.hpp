#pragma once

#include "optpipe/milp/io/text_place.hpp"

#include <algorithm>
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

/// A data line's fields: a code, a name, and one or two (name, number) pairs.
struct mps_fields {
    std::string_view code;
    std::string_view name;
    struct {
        std::string_view name;
        std::string_view number;
    } pairs[2];
};

/// `$` in the place of a name starts a comment.
inline constexpr char comment_mark = '$';

/// Reads the fields at their columns. Refuses text outside of the fixed columns.
[[nodiscard]] inline mps_fields fixed_fields(std::string_view line, const text_place& place) {
    constexpr struct {
        std::size_t first;
        std::size_t length;
    } columns[] = {{1, 2}, {4, 8}, {14, 8}, {24, 12}, {39, 8}, {49, 12}};
    for (const std::size_t name : {columns[2].first, columns[4].first})
        if (name < line.size() && line[name] == comment_mark) line = line.substr(0, name);
    while (!line.empty() && is_blank(line.back()))
        line.remove_suffix(1);
    if (line.find('\t') != std::string_view::npos) place.refuse("has a tab, and the fixed format counts columns");
    std::array<std::string_view, std::size(columns)> field{};
    std::size_t next = 0;
    for (std::size_t i = 0; i < field.size() && next < line.size(); ++i) {
        const auto between = line.substr(next, columns[i].first - next);
        if (const auto found = between.find_first_not_of(' '); found != std::string_view::npos)
            place.refuse("has text in column " + std::to_string(next + found + 1) +
                         ", which is outside of the fields of the fixed format");
        next = columns[i].first + columns[i].length;
        if (columns[i].first < line.size()) field[i] = trimmed(line.substr(columns[i].first, columns[i].length));
    }
    if (next < line.size()) place.refuse("is longer than the fields of the fixed format");
    return {field[0], field[1], {{field[2], field[3]}, {field[4], field[5]}}};
}

/// The words of a line, up to its comment.
[[nodiscard]] inline std::vector<std::string_view> free_words(std::string_view line) {
    auto words = words_of(line);
    const auto is_comment = [](std::string_view word) { return word.front() == comment_mark; };
    if (!words.empty()) words.erase(std::find_if(words.begin() + 1, words.end(), is_comment), words.end());
    return words;
}

/// Reads a name and pairs, or only pairs. If the number of words is even, the name is missing.
[[nodiscard]] inline mps_fields free_fields(std::string_view line, const text_place& place) {
    constexpr std::size_t most_words = 5;
    const auto words = free_words(line);
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

/// Reads a double as spelled in MPS files. "+1" and "1D3" are allowed. With `or_infinite`, "Inf" and numbers of at
/// least 1e20 are allowed, too.
[[nodiscard]] inline double mps_number(std::string_view text, const text_place& place, bool or_infinite = false) {
    std::string digits{text.starts_with('+') ? text.substr(1) : text};
    for (auto& c : digits)
        if (c == 'D' || c == 'd') c = 'e';
    double value = 0.0;
    const auto* const end = digits.data() + digits.size();
    if (digits.size() < text.size() && digits.starts_with('-')) place.refuse(in_quotes(text) + " is not a number");
    const auto [stop, error] = std::from_chars(digits.data(), end, value);
    if (error == std::errc::result_out_of_range) place.refuse(in_quotes(text) + " is out of the range of numbers");
    if (error != std::errc{} || stop != end || std::isnan(value)) place.refuse(in_quotes(text) + " is not a number");
    return checked_number(value, text, place, or_infinite);
}

} // namespace detail
} // namespace optpipe::milp
