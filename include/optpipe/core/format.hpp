#pragma once

#include "optpipe/core/quantity.hpp"

#include <array>
#include <charconv>
#include <string>

namespace optpipe {

/// Formats a number for people: at most `digits` significant digits, no trailing zeros, independent of the locale.
inline std::string format_number(double value, int digits = 6) {
    std::array<char, 64> text{};
    const auto end =
        std::to_chars(text.data(), text.data() + text.size(), value, std::chars_format::general, digits).ptr;
    return {text.data(), end};
}

template <class Tag> std::string format_number(quantity<Tag> value, int digits = 6) {
    return format_number(value.value(), digits);
}

} // namespace optpipe
