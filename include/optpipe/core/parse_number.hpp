#pragma once

#include "optpipe/core/standard.hpp"

#include <charconv>
#include <optional>
#include <string_view>
#include <system_error>

namespace optpipe {

/// The number that the whole text spells, as read by `std::from_chars`. Otherwise empty.
template <class Number> [[nodiscard]] std::optional<Number> parse_number(std::string_view text) {
    Number value{};
    const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), value);
    return failure == std::errc{} && end == text.data() + text.size() ? std::optional{value} : std::nullopt;
}

} // namespace optpipe
