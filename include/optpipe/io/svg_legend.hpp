#pragma once

#include "optpipe/io/svg_canvas.hpp"
#include "optpipe/io/svg_labels.hpp"
#include "optpipe/schedule/operation.hpp"

#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace optpipe::detail {

/// The legend of colours below the title. Entries are written from left to right, in several rows if necessary.
class svg_legend {
public:
    static constexpr double row_height = 16.0;
    static constexpr double font_size = 11.0;

    /// `y` is the base line of the first row.
    svg_legend(svg_canvas& canvas, double left, double right, double y, std::size_t shades)
        : canvas_{&canvas}, left_{left}, right_{right}, x_{left}, y_{y}, shades_{shades} {}

    /// Adds a coloured box, followed by `name`. The box is divided into one part for each style.
    void entry(const std::vector<std::string>& styles, std::string_view name) {
        make_room(swatch + text_width(name, font_size));
        const double each = box_width / static_cast<double>(std::max<std::size_t>(styles.size(), 1));
        for (std::size_t i = 0; i < styles.size(); ++i)
            canvas_->rectangle(styles[i], x_ + static_cast<double>(i) * each, y_ - 9.5, each, 11);
        text(swatch, name);
    }
    void kind(operation_kind which) {
        std::vector<std::string> styles;
        for (std::size_t i = 0; i < (is_transfer(which) ? 1 : shades_); ++i)
            styles.push_back(shade_class(which, i));
        entry(styles, legend_name(which));
    }
    void line(std::string_view style, std::string_view name) {
        constexpr double length = 22.0;
        make_room(length + 4.0 + text_width(name, font_size));
        canvas_->line(style, x_, y_ - 4, x_ + length, y_ - 4);
        text(length + 4.0, name);
    }
    void remark(std::string_view words) {
        make_room(text_width(words, font_size));
        text(0.0, words);
    }
    /// The base line of the last row.
    [[nodiscard]] double last_row() const { return y_; }

private:
    static constexpr double box_width = 14.0;
    static constexpr double swatch = box_width + 4.0;
    static constexpr double space = 12.0;

    void make_room(double width) {
        if (x_ > left_ && x_ + width > right_) next_row();
    }
    void next_row() {
        x_ = left_;
        y_ += row_height;
    }
    /// Writes text that starts `indent` to the right of the last entry. If the words don't fit in the row, they
    /// continue in further rows.
    void text(double indent, std::string_view words) {
        const auto lines = lines_of({std::string{words}}, "", right_ - x_ - indent, font_size);
        for (std::size_t i = 0; i < lines.size(); ++i) {
            if (i > 0) next_row();
            canvas_->text("legend", x_ + indent, y_, lines[i]);
        }
        if (!lines.empty()) x_ += indent + text_width(lines.back(), font_size) + space;
    }

    svg_canvas* canvas_;
    double left_;
    double right_;
    double x_;
    double y_;
    std::size_t shades_;
};

} // namespace optpipe::detail
