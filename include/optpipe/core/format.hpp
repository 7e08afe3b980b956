#pragma once

#include "optpipe/core/quantity.hpp"

#include <array>
#include <charconv>
#include <cmath>
#include <cstddef>
#include <string>

namespace optpipe {

/// Formats a number for people to read: at most `digits` significant digits, no trailing zeros, independent of the
/// locale. Numbers up to 1e15 are written out. Larger numbers have an exponent.
inline std::string format_number(double value, int digits = 6) {
    constexpr double least_with_exponent = 1e15;
    std::array<char, 64> buffer{};
    const auto end =
        std::to_chars(buffer.data(), buffer.data() + buffer.size(), value, std::chars_format::general, digits).ptr;
    std::string text{buffer.data(), end};
    const auto e = text.find("e+");
    if (e == std::string::npos || std::abs(value) >= least_with_exponent) return text;
    std::size_t exponent = 0;
    std::from_chars(text.data() + e + 2, text.data() + text.size(), exponent);
    text.resize(e);
    std::erase(text, '.');
    // `to_chars` has written an exponent. The digits that `to_chars` has omitted are zeros.
    text.resize(exponent + (value < 0.0 ? 2 : 1), '0');
    return text;
}

template <class Tag> std::string format_number(quantity<Tag> value, int digits = 6) {
    return format_number(value.value(), digits);
}

/// The shortest decimal text that reads back as exactly this number.
inline std::string exact_number(double value) {
    std::array<char, 32> text{};
    return {text.data(), std::to_chars(text.data(), text.data() + text.size(), value).ptr};
}

} // namespace optpipe
