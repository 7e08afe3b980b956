#pragma once

// A picture of the step time over steps.

#include "online_training.hpp"
#include <optpipe/core/format.hpp>
#include <optpipe/io/svg_canvas.hpp>

#include <algorithm>
#include <cstddef>
#include <string>
#include <utility>
#include <vector>

namespace online_bench {

/// The step time of an offline plan for the costs of a phase.
struct offline_step {
    std::size_t from = 0;
    std::size_t to = 0;
    double seconds = 0.0;
};

class step_picture {
public:
    step_picture(const record& seen, const std::vector<offline_step>& offline)
        : seen_{seen}, offline_{offline},
          // A step delayed by the machine shouldn't determine the height of the picture.
          most_{1.25 * percentile(seen.seconds, 0.98)}, steps_{static_cast<double>(seen.seconds.size())} {}

    std::string draw() && {
        begin();
        for (const auto& phase : offline_) {
            const auto at = static_cast<double>(phase.from);
            if (phase.from > 0) canvas_.line("phase", x(at), top, x(at), bottom);
            canvas_.line("offline", x(at), y(phase.seconds), x(static_cast<double>(phase.to)), y(phase.seconds));
        }
        for (const auto& event : seen_.log) {
            const bool taken = event.kind == online_event::kind_type::accepted;
            if (!taken && event.kind != online_event::kind_type::drift) continue;
            const auto at = x(static_cast<double>(event.step));
            canvas_.line(taken ? "taken" : "found", at, top, at, bottom);
        }
        std::string path;
        for (std::size_t i = 0; i < seen_.seconds.size(); ++i)
            path += (i == 0 ? "M" : "L") + canvas_type::coordinate(x(static_cast<double>(i) + 0.5)) + ' ' +
                    canvas_type::coordinate(y(std::min(seen_.seconds[i], most_)));
        canvas_.path("steps", path);
        canvas_.text(
            "", left, 325.0,
            "step time over " + std::to_string(seen_.seconds.size()) +
                " steps; red: another plan, dashed: costs have drifted, grey: they change; green: the offline plan");
        canvas_.add("</svg>\n");
        return std::move(canvas_).take();
    }

    static double percentile(std::vector<double> of, double share) {
        const auto at = static_cast<std::size_t>(share * static_cast<double>(of.size() - 1));
        std::nth_element(of.begin(), of.begin() + static_cast<std::ptrdiff_t>(at), of.end());
        return of[at];
    }

private:
    using canvas_type = optpipe::detail::svg_canvas;
    static constexpr double left = 60.0, right = 880.0, top = 20.0, bottom = 300.0;

    [[nodiscard]] double x(double step) const { return left + (right - left) * step / steps_; }
    [[nodiscard]] double y(double seconds) const { return bottom - (bottom - top) * seconds / most_; }
    void begin() {
        canvas_.add(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 900 340\" font-family=\"sans-serif\" "
            "font-size=\"12\">\n<style>.axis{stroke:#ddd}.steps{fill:none;stroke:#1f77b4;stroke-width:1}"
            ".taken{stroke:#d62728}.found{stroke:#ff7f0e;stroke-dasharray:4 3}.phase{stroke:#999;stroke-width:3}"
            ".offline{stroke:#2ca02c;stroke-width:1.5}</style>\n"
            "<rect width=\"900\" height=\"340\" fill=\"#fff\"/>\n");
        constexpr int ticks = 5;
        for (int i = 0; i <= ticks; ++i) {
            const double seconds = most_ * i / ticks;
            canvas_.line("axis", left, y(seconds), right, y(seconds));
            canvas_.text("", 4.0, y(seconds) + 4.0, format_number(1e3 * seconds, 3) + " ms");
        }
    }

    const record& seen_;
    const std::vector<offline_step>& offline_;
    double most_;
    double steps_;
    canvas_type canvas_{};
};

} // namespace online_bench
