#pragma once

#include "optpipe/io/escape.hpp"
#include "optpipe/io/palette.hpp"
#include "optpipe/schedule/operation.hpp"

#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace optpipe::detail {

/// An operation's class in the style sheet: the kind's letter, and the stage's position on its rank. For example, `F0`
/// is for forwards of a rank's first stage.
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

/// The largest font size at which `characters` characters of a sans-serif font fit into `width`.
inline double label_size_for(double width, std::size_t characters) {
    constexpr double character_width = 0.62;
    constexpr double margin = 1.4;
    return (width - margin) / (character_width * static_cast<double>(std::max<std::size_t>(characters, 1)));
}

inline std::vector<std::string> words_of(std::string_view text) {
    std::vector<std::string> words;
    while (!text.empty()) {
        const auto space = std::min(text.find(' '), text.size());
        if (space > 0) words.emplace_back(text.substr(0, space));
        text.remove_prefix(std::min(space + 1, text.size()));
    }
    return words;
}

/// An upper estimate of the width of a line of text, valid for all sans-serif fonts.
inline double text_width(std::string_view text, double size) {
    constexpr double narrow = 0.36;
    constexpr double usual = 0.64;
    constexpr double capital = 0.72;
    constexpr double wide = 1.0;
    double width = 0.0;
    for_each_character(text, [&](std::string_view c, bool) {
        const char first = c.front();
        const bool is_narrow = std::string_view{" .,:;'|!()[]ijl"}.find(first) != std::string_view::npos;
        const bool is_wide = c.size() > 2 || std::string_view{"mwMW%@"}.find(first) != std::string_view::npos;
        width += is_narrow ? narrow : is_wide ? wide : first >= 'A' && first <= 'Z' ? capital : usual;
    });
    return width * size;
}

/// Cuts a text to `width`, with an ellipsis at the end.
inline std::string cut_to_width(std::string_view text, double width, double size) {
    constexpr std::string_view ellipsis = "…";
    if (text_width(text, size) <= width) return std::string{text};
    std::string result;
    for_each_character(text, [&, full = false](std::string_view c, bool) mutable {
        full = full || text_width(result + std::string{c}, size) + text_width(ellipsis, size) > width;
        if (!full) result += c;
    });
    return result.append(ellipsis);
}

/// Arranges the pieces in lines. Each line takes as many pieces as fit. A piece longer than a line is broken at spaces.
inline std::vector<std::string> lines_of(const std::vector<std::string>& pieces, std::string_view between, double width,
                                         double size) {
    std::vector<std::string> lines;
    for (const auto& piece : pieces) {
        const auto longer = lines.empty() ? piece : lines.back() + std::string{between} + piece;
        if (!lines.empty() && text_width(longer, size) <= width) {
            lines.back() = longer;
        } else if (text_width(piece, size) <= width) {
            lines.push_back(piece);
        } else if (between == " ") {
            lines.push_back(cut_to_width(piece, width, size));
        } else {
            const auto broken = lines_of(words_of(piece), " ", width, size);
            lines.insert(lines.end(), broken.begin(), broken.end());
        }
    }
    return lines;
}

inline std::string svg_shades(std::size_t shades, bool recomputes) {
    std::string css;
    for (const auto kind : all_operation_kinds)
        for (std::size_t i = 0; i < (is_transfer(kind) ? 1 : shades); ++i)
            if (recomputes || kind != operation_kind::recompute)
                css += "." + shade_class(kind, i) + "{fill:" + shade_of(kind, i, shades).text() + "}\n";
    return css;
}

inline std::string svg_style(std::size_t shades, double label_size, double small_size, bool outlined, bool recomputes) {
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
