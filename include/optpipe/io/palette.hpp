#pragma once

#include "optpipe/io/escape.hpp"
#include "optpipe/schedule/operation.hpp"

#include <array>
#include <cmath>
#include <cstddef>
#include <string>
#include <string_view>

/// The colours of figures and pages.
namespace optpipe::detail {

struct colour {
    int red = 0;
    int green = 0;
    int blue = 0;

    [[nodiscard]] std::string text() const {
        std::string hex = "#";
        for (const int part : {red, green, blue})
            hex += hex_of(static_cast<char>(part));
        return hex;
    }
    [[nodiscard]] bool is_dark() const { return 299 * red + 587 * green + 114 * blue < 150'000; }
};

/// The colour at `share` (0 to 1) of the way from `from` to `to`.
inline colour mix(const colour& from, const colour& to, double share) {
    const auto part = [&](int a, int b) { return static_cast<int>(std::lround(a + share * (b - a))); };
    return {part(from.red, to.red), part(from.green, to.green), part(from.blue, to.blue)};
}

[[nodiscard]] constexpr colour base_colour(operation_kind kind) {
    switch (kind) {
    case operation_kind::forward: return {76, 125, 212};
    case operation_kind::backward_input: return {43, 163, 155};
    case operation_kind::backward_weight: return {132, 184, 72};
    case operation_kind::backward: return {236, 148, 58};
    case operation_kind::offload: return {120, 82, 190};
    case operation_kind::reload: return {214, 84, 152};
    case operation_kind::recompute: return {233, 196, 61};
    }
    return {};
}

/// The colour of an operation on the stage at `position` of its rank's `count` stages. Later stages are darker.
inline colour shade_of(operation_kind kind, std::size_t position, std::size_t count) {
    const auto base = base_colour(kind);
    if (count < 2 || is_transfer(kind)) return base;
    const double share = static_cast<double>(position) / static_cast<double>(count - 1);
    const colour light = mix(base, {255, 255, 255}, 0.38);
    const colour dark = mix(base, {0, 0, 0}, 0.3);
    return mix(light, dark, share);
}

/// The colour of text that is readable on the given background.
[[nodiscard]] inline std::string_view text_colour_on(const colour& background) {
    return background.is_dark() ? "#fff" : "#111";
}

/// Colours of storage options that colour-blind readers can distinguish. Further options repeat the colours with bars.
inline constexpr std::array option_colours{
    colour{78, 121, 167}, colour{242, 142, 43},  colour{225, 87, 89},  colour{118, 183, 178}, colour{89, 161, 79},
    colour{237, 201, 72}, colour{176, 122, 161}, colour{156, 117, 95}, colour{120, 120, 120}, colour{255, 157, 167}};

/// Variables of a style sheet. Each kind of operation has a background colour and a text colour.
inline std::string kind_variables(double darkening) {
    std::string css;
    for (const auto kind : all_operation_kinds) {
        const auto fill = mix(base_colour(kind), {0, 0, 0}, darkening);
        const std::string name{spelling(kind)};
        css.append("--").append(name).append(": ").append(fill.text()).append("; ");
        css.append("--on-").append(name).append(": ").append(text_colour_on(fill)).append(";\n");
    }
    return css;
}

/// The style variables for the light and the dark theme of the page.
inline std::string palette_style() {
    constexpr double dark_theme = 0.15;
    return ":root {\n" + kind_variables(0.0) + "}\n:root[data-theme=\"dark\"] {\n" + kind_variables(dark_theme) + "}\n";
}

} // namespace optpipe::detail
