#pragma once

#include "optpipe/core/byte_order_mark.hpp"
#include "optpipe/core/error.hpp"
#include "optpipe/milp/expression.hpp"
#include "optpipe/milp/io/read_text.hpp"

#include <cmath>
#include <cstddef>
#include <string>
#include <string_view>
#include <utility>

namespace optpipe::milp::detail {

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

/// The text of a model without its byte order mark. Refuses UTF-16.
[[nodiscard]] inline std::string_view model_text(std::string_view text, const std::string& source) {
    if (is_utf16(text)) text_place{&source, 1}.refuse(std::string{utf16_reason});
    return without_byte_order_mark(text);
}

/// Checks a number that a file spells as `text`. Numbers from 1e20 on count as infinite. Infinite numbers are refused
/// unless `or_infinite` is true.
[[nodiscard]] inline double checked_number(double value, std::string_view text, const text_place& place,
                                           bool or_infinite) {
    constexpr double counts_as_infinite = 1e20;
    if (std::abs(value) < counts_as_infinite) return value;
    if (!or_infinite) place.refuse(in_quotes(text) + " is too large");
    return std::copysign(infinity, value);
}

} // namespace optpipe::milp::detail
