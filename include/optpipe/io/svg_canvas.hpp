#pragma once

#include "optpipe/io/escape.hpp"
#include "optpipe/schedule/operation.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <string>
#include <string_view>

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

/// The colour at `share` (0 to 1) of the way from one to the other.
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

/// The colour of the stage at `position` among `count` on its rank: from light to dark.
inline colour shade_of(operation_kind kind, std::size_t position, std::size_t count) {
    const auto base = base_colour(kind);
    if (count < 2 || is_transfer(kind)) return base;
    const double share = static_cast<double>(position) / static_cast<double>(count - 1);
    const colour light = mix(base, {255, 255, 255}, 0.38);
    const colour dark = mix(base, {0, 0, 0}, 0.3);
    return mix(light, dark, share);
}

/// A class of the style sheet, as letter and number: `F0` is for forwards of the first stage of a rank.
inline std::string shade_class(operation_kind kind, std::size_t position) {
    return std::string(1, letter_of(kind)) + std::to_string(is_transfer(kind) ? 0 : position);
}

/// Writes the elements of an SVG document.
class svg_canvas {
public:
    void add(std::string_view text) { text_.append(text); }

    /// Viewers show `title` when the pointer rests on the rectangle.
    void rectangle(std::string_view style, double x, double y, double width, double height,
                   std::string_view title = {}) {
        add("<rect class=\"");
        add(style);
        add("\"" + attribute("x", x) + attribute("y", y) + attribute("width", width) + attribute("height", height));
        if (title.empty())
            add("/>\n");
        else
            add("><title>" + xml_escaped(title) + "</title></rect>\n");
    }

    void line(std::string_view style, double x1, double y1, double x2, double y2) {
        add("<line class=\"");
        add(style);
        add("\"" + attribute("x1", x1) + attribute("y1", y1) + attribute("x2", x2) + attribute("y2", y2) + "/>\n");
    }

    void circle(std::string_view style, double x, double y, double radius) {
        add("<circle class=\"");
        add(style);
        add("\"" + attribute("cx", x) + attribute("cy", y) + attribute("r", radius) + "/>\n");
    }

    void text(std::string_view style, double x, double y, std::string_view content, std::string_view title = {}) {
        add("<text class=\"");
        add(style);
        add("\"" + attribute("x", x) + attribute("y", y) + ">");
        if (!title.empty()) add("<title>" + xml_escaped(title) + "</title>");
        add(xml_escaped(content) + "</text>\n");
    }

    void path(std::string_view style, std::string_view data) {
        add("<path class=\"");
        add(style);
        add("\" d=\"");
        add(data);
        add("\"/>\n");
    }

    [[nodiscard]] std::string take() && { return std::move(text_); }

    static std::string coordinate(double value) { return fixed_number(value, 2); }

private:
    static std::string attribute(const char* name, double value) {
        return " " + std::string{name} + "=\"" + coordinate(value) + "\"";
    }

    std::string text_;
};

/// The largest font size at which this number of characters of a sans-serif font fits into `width`.
inline double label_size_for(double width, std::size_t characters) {
    constexpr double character_width = 0.62;
    constexpr double margin = 1.4;
    return (width - margin) / (character_width * static_cast<double>(std::max<std::size_t>(characters, 1)));
}

inline std::string svg_shades(std::size_t shades, bool recomputes) {
    std::string css;
    for (const auto kind : all_operation_kinds)
        for (std::size_t i = 0; i < (is_transfer(kind) ? 1 : shades); ++i)
            if (recomputes || kind != operation_kind::recompute)
                css += "." + shade_class(kind, i) + "{fill:" + shade_of(kind, i, shades).text() + "}\n";
    return css;
}

inline std::string svg_style(std::size_t shades, double label_size, double small_size, bool outlined,
                             bool recomputes) {
    const auto size = [](double s) { return "font-size:" + svg_canvas::coordinate(s) + "px"; };
    return "<style>\n"
           "text{font-family:Helvetica,Arial,'Liberation Sans','DejaVu Sans',sans-serif;fill:#222}\n"
           ".title{font-size:16px;font-weight:bold}\n.facts{font-size:12px;fill:#444}\n.legend{font-size:11px;fill:#"
           "333}\n"
           ".rank{text-anchor:end;font-weight:bold;" +
           size(small_size + 2) + "}\n.side{text-anchor:end;fill:#777;" + size(small_size) + "}\n.peak{fill:#3d4653;" +
           size(small_size) + "}\n.over{fill:#c62828;" + size(small_size) +
           "}\n.tick{text-anchor:middle;font-size:11px;fill:#555}\n.unit{text-anchor:middle;font-size:12px}\n"
           ".dark,.light{text-anchor:middle;pointer-events:none;" +
           size(label_size) +
           "}\n.dark{fill:#111}\n.light{fill:#fff}\n"
           ".page{fill:#fff}\n.bubble{fill:url(#bubble);stroke:#c4c4c4;stroke-width:.5}\n.host{fill:#f1f0f4}\n"
           ".floor{stroke:#999;stroke-width:.6}\n.grid{stroke:#e4e4e4;stroke-width:.8}\n.axis{stroke:#555}\n"
           ".memory{fill:#cfd6e0;stroke:#66758a;stroke-width:.8;stroke-linejoin:round}\n"
           ".limit{stroke:#c62828;stroke-width:1.1;stroke-dasharray:5 3}\n.summit{fill:#3d4653}\n"
           ".bound{stroke:#111;stroke-width:1.1;stroke-dasharray:1.5 "
           "2.5}\n.boundname{text-anchor:end;font-size:11px}\n.start{text-anchor:start}\n" +
           (outlined ? ".o{stroke:#fff;stroke-width:.7}\n" : "") + svg_shades(shades, recomputes) +
           "</style>\n<defs>"
           "<pattern id=\"bubble\" width=\"5\" height=\"5\" patternUnits=\"userSpaceOnUse\" "
           "patternTransform=\"rotate(45)\">"
           "<rect width=\"5\" height=\"5\" fill=\"#fafafa\"/><rect width=\"1.1\" height=\"5\" "
           "fill=\"#dadada\"/></pattern>"
           "</defs>\n";
}

} // namespace optpipe::detail
