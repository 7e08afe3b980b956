#include "sweep_picture.hpp"

#include <optpipe/core/format.hpp>
#include <optpipe/io/escape.hpp>
#include <optpipe/io/palette.hpp>
#include <optpipe/io/svg_canvas.hpp>
#include <optpipe/io/timeline.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdlib>
#include <limits>
#include <optional>
#include <utility>

namespace program {
namespace {

/// A place in a curve, as the viewer shows it when the pointer rests on it.
struct curve_point {
    double x = 0.0;
    double y = 0.0;
    std::string title;
};

/// An interval that holds all values that were added.
struct extent {
    double least = std::numeric_limits<double>::infinity();
    double most = -std::numeric_limits<double>::infinity();

    void add(double value) {
        least = std::min(least, value);
        most = std::max(most, value);
    }
    /// If at most one value was added, makes an interval around this value, or around 0.
    void widen() {
        if (least > most) least = most = 0.0;
        if (least == most) {
            least -= 0.5;
            most += 0.5;
        }
    }
    [[nodiscard]] double share_of(double value) const { return (value - least) / (most - least); }
};

double number_of(const std::string& value) { return std::strtod(value.c_str(), nullptr); }

class sweep_picture {
public:
    sweep_picture(std::string field, std::string unit, const std::vector<std::string>& values,
                  const std::vector<sweep_row>& rows)
        : field_{std::move(field)}, unit_{std::move(unit)}, values_{values}, rows_{rows} {
        for (const auto& value : values)
            places_.add(number_of(value));
        for (const auto& row : rows)
            if (row.objective) {
                steps_.add(*row.objective);
                steps_.add(row.bound);
            }
        places_.widen();
        steps_.widen();
    }

    [[nodiscard]] std::string draw(const std::vector<std::string>& ways) && {
        const double height = std::max(bottom + 60.0, top + line_height * static_cast<double>(ways.size() + 2));
        const auto size = "\"0 0 900 " + canvas_type::coordinate(height) + "\"";
        canvas_.add("<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=" + size +
                    " font-family=\"sans-serif\" font-size=\"12\">\n<style>.axis{stroke:#ddd}path{fill:none;"
                    "stroke-width:1.5}.tick{text-anchor:middle}.step{text-anchor:end}</style>\n<rect width=\"900\" "
                    "height=\"" +
                    canvas_type::coordinate(height) + "\" fill=\"#fff\"/>\n");
        draw_axes();
        for (std::size_t i = 0; i < ways.size(); ++i) {
            const auto colours = optpipe::detail::option_colours.size();
            draw_curve(ways[i], optpipe::detail::option_colours[i % colours].text(), i < colours ? "" : "5 3",
                       curve_of(ways[i]), i);
        }
        draw_curve("bound", "#111", "1.5 2.5", bounds(), ways.size());
        canvas_.add("</svg>\n");
        return std::move(canvas_).take();
    }

private:
    using canvas_type = optpipe::detail::svg_canvas;
    using curve_type = std::vector<std::optional<curve_point>>;
    static constexpr double left = 80.0, right = 680.0, top = 40.0, bottom = 360.0, line_height = 18.0;

    [[nodiscard]] double x(double place) const { return left + (right - left) * places_.share_of(place); }
    [[nodiscard]] double y(double step) const { return bottom - (bottom - top) * steps_.share_of(step); }

    [[nodiscard]] curve_point point(const std::string& value, const std::string& name, double step) const {
        return {x(number_of(value)), y(step),
                field_ + " " + value + ", " + name + ": " + optpipe::format_number(step, digits) +
                    (unit_.empty() ? "" : " " + unit_)};
    }
    [[nodiscard]] curve_type curve_of(const std::string& way) const {
        curve_type curve;
        for (const auto& value : values_) {
            const auto row = std::find_if(rows_.begin(), rows_.end(), [&](const sweep_row& each) {
                return each.value == value && each.by == way && each.objective;
            });
            curve.push_back(row == rows_.end() ? std::nullopt : std::optional{point(value, way, *row->objective)});
        }
        return curve;
    }
    [[nodiscard]] curve_type bounds() const {
        curve_type curve;
        for (const auto& value : values_) {
            std::optional<double> best;
            for (const auto& row : rows_)
                if (row.value == value && row.objective) best = std::max(best.value_or(row.bound), row.bound);
            curve.push_back(best ? std::optional{point(value, "bound", *best)} : std::nullopt);
        }
        return curve;
    }

    void draw_axes() {
        constexpr double ticks = 6.0;
        const auto each_tick = [](const extent& along, const auto& draw) {
            const double step = optpipe::detail::round_step((along.most - along.least) / ticks);
            const double first = std::ceil(along.least / step);
            for (double i = 0.0; (first + i) * step <= along.most && i <= ticks; ++i)
                draw((first + i) * step);
        };
        each_tick(steps_, [&](double step) {
            canvas_.line("axis", left, y(step), right, y(step));
            canvas_.text("step", left - 8.0, y(step) + 4.0, optpipe::format_number(step));
        });
        each_tick(places_, [&](double place) {
            canvas_.line("axis", x(place), bottom, x(place), bottom + 5.0);
            canvas_.text("tick", x(place), bottom + line_height, optpipe::format_number(place));
        });
        canvas_.text("tick", 0.5 * (left + right), bottom + 40.0, field_);
        canvas_.text("", left, 20.0, "step time" + (unit_.empty() ? "" : " in " + unit_));
    }

    void draw_curve(const std::string& name, const std::string& colour, const std::string& dashes,
                    const curve_type& curve, std::size_t line) {
        const auto stroke =
            "<path stroke=\"" + colour + "\"" + (dashes.empty() ? "" : " stroke-dasharray=\"" + dashes + "\"");
        std::string path;
        for (std::size_t i = 0; i < curve.size(); ++i)
            if (curve[i])
                path += (i > 0 && curve[i - 1] ? "L" : "M") + canvas_type::coordinate(curve[i]->x) + ' ' +
                        canvas_type::coordinate(curve[i]->y);
        canvas_.add(stroke + " d=\"" + path + "\"/>\n");
        for (const auto& at : curve)
            if (at)
                canvas_.add("<circle cx=\"" + canvas_type::coordinate(at->x) + "\" cy=\"" +
                            canvas_type::coordinate(at->y) + "\" r=\"3\" fill=\"" + colour + "\"><title>" +
                            optpipe::xml_escaped(at->title) + "</title></circle>\n");
        const double height = top + line_height * static_cast<double>(line);
        canvas_.add(stroke + " d=\"M" + canvas_type::coordinate(right + 20.0) + ' ' + canvas_type::coordinate(height) +
                    "h24\"/>\n");
        canvas_.text("", right + 52.0, height + 4.0, name);
    }

    /// The same number of digits as in the CSV file.
    static constexpr int digits = 15;

    std::string field_;
    std::string unit_;
    const std::vector<std::string>& values_;
    const std::vector<sweep_row>& rows_;
    extent places_;
    extent steps_;
    canvas_type canvas_{};
};

} // namespace

std::string picture_of(const std::string& field, const std::string& unit, const std::vector<std::string>& values,
                       const std::vector<std::string>& ways, const std::vector<sweep_row>& rows) {
    return sweep_picture{optpipe::printable(field, 60), optpipe::printable(unit, 20), values, rows}.draw(ways);
}

} // namespace program
