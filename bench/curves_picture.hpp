#pragma once

// A picture of several curves over one axis.

#include <optpipe/core/format.hpp>
#include <optpipe/io/svg_canvas.hpp>

#include <algorithm>
#include <cstddef>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace bench {

/// A curve with its values at the places of the axis; an empty value isn't drawn.
struct curve {
    std::string name;
    std::string colour;
    std::vector<std::optional<double>> values{};
};

class curves_picture {
public:
    /// `places` are drawn from left to right; `axis` names them, `title` names the values of the curves.
    curves_picture(std::string title, std::string axis, std::vector<double> places, std::vector<curve> curves)
        : title_{std::move(title)}, axis_{std::move(axis)}, places_{std::move(places)}, curves_{std::move(curves)} {
        for (const auto& each : curves_)
            for (const auto& value : each.values)
                if (value) {
                    least_ = std::min(least_, *value);
                    most_ = std::max(most_, *value);
                }
    }

    [[nodiscard]] std::string draw() && {
        canvas_.add("<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 720 400\" font-family=\"sans-serif\" "
                    "font-size=\"12\">\n<style>.axis{stroke:#ddd}path{fill:none;stroke-width:1.5}</style>\n"
                    "<rect width=\"720\" height=\"400\" fill=\"#fff\"/>\n");
        draw_axes();
        for (std::size_t c = 0; c < curves_.size(); ++c)
            draw_curve(curves_[c], top + 18.0 * static_cast<double>(c + 1));
        canvas_.add("</svg>\n");
        return std::move(canvas_).take();
    }

private:
    using canvas_type = optpipe::detail::svg_canvas;
    static constexpr double left = 60.0, right = 560.0, top = 40.0, bottom = 340.0;

    [[nodiscard]] double x(double place) const {
        return left + (right - left) * (place - places_.front()) / (places_.back() - places_.front());
    }
    [[nodiscard]] double y(double value) const { return bottom - (bottom - top) * (value - least_) / (most_ - least_); }

    void draw_axes() {
        constexpr int ticks = 5;
        for (int i = 0; i <= ticks; ++i) {
            const double value = least_ + (most_ - least_) * i / ticks;
            canvas_.line("axis", left, y(value), right, y(value));
            canvas_.text("", 8.0, y(value) + 4.0, optpipe::format_number(value, 3));
        }
        for (const double place : places_)
            canvas_.text("", x(place) - 10.0, bottom + 18.0, optpipe::format_number(place, 2));
        canvas_.text("", left, bottom + 40.0, axis_);
        canvas_.text("", left, 20.0, title_);
    }
    void draw_curve(const curve& each, double legend) {
        std::string path;
        for (std::size_t i = 0; i < places_.size(); ++i) {
            if (!each.values[i]) continue;
            const bool goes_on = i > 0 && each.values[i - 1];
            path += (goes_on ? "L" : "M") + canvas_type::coordinate(x(places_[i])) + ' ' +
                canvas_type::coordinate(y(*each.values[i]));
        }
        canvas_.add("<path stroke=\"" + each.colour + "\" d=\"" + path + "\"/>\n");
        canvas_.add("<path stroke=\"" + each.colour + "\" d=\"M575 " + canvas_type::coordinate(legend) + "h20\"/>\n");
        canvas_.text("", 600.0, legend + 4.0, each.name);
    }

    std::string title_;
    std::string axis_;
    std::vector<double> places_;
    std::vector<curve> curves_;
    double least_ = std::numeric_limits<double>::infinity();
    double most_ = -std::numeric_limits<double>::infinity();
    canvas_type canvas_{};
};

} // namespace bench
