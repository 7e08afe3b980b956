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

/// The line below the title that explains the colours, written from left to right.
class svg_legend {
public:
    svg_legend(svg_canvas& canvas, double left, std::size_t shades) : canvas_{&canvas}, x_{left}, shades_{shades} {}

    /// Adds a box, divided into one part for each style.
    void entry(const std::vector<std::string>& styles, std::string_view name) {
        const double each = width / static_cast<double>(std::max<std::size_t>(styles.size(), 1));
        for (std::size_t i = 0; i < styles.size(); ++i)
            canvas_->rectangle(styles[i], x_ + static_cast<double>(i) * each, 56, each, 11);
        x_ += width + 4.0;
        canvas_->text("legend", x_, 65.5, name);
        x_ += 16.0 + 5.9 * static_cast<double>(name.size());
    }
    void kind(operation_kind which) {
        std::vector<std::string> styles;
        for (std::size_t i = 0; i < (is_transfer(which) ? 1 : shades_); ++i)
            styles.push_back(shade_class(which, i));
        entry(styles, legend_name(which));
    }
    void line(std::string_view style, std::string_view name) {
        canvas_->line(style, x_, 61.5, x_ + 22, 61.5);
        x_ += 8;
        entry({}, name);
    }
    void remark(std::string_view text) {
        x_ -= width + 4.0;
        entry({}, text);
    }

private:
    static constexpr double width = 14.0;

    svg_canvas* canvas_;
    double x_;
    std::size_t shades_;
};

} // namespace optpipe::detail
