#pragma once

#include "optpipe/core/format.hpp"
#include "optpipe/core/tolerance.hpp"
#include "optpipe/io/svg_canvas.hpp"
#include "optpipe/io/svg_layout.hpp"
#include "optpipe/io/timeline.hpp"
#include "optpipe/pipeline/problem.hpp"

#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace optpipe::detail {

/// Draws the curves of device memory and the memory limits. All ranks have the same scale.
class svg_memory {
public:
    /// `plan` is null if there is no plan. The timelines must outlive this object.
    svg_memory(const problem& p, const timeline& t, const timeline* plan) : p_{&p}, timeline_{&t}, plan_{plan} {
        memory_size peak{};
        memory_size limit{};
        for (const rank r : p.graph.all_ranks()) {
            peak = std::max(peak, peak_of(t.ranks[r].device_memory));
            if (plan) peak = std::max(peak, peak_of(plan->ranks[r].device_memory));
            if (!p.memory_limit[r].is_unlimited()) limit = std::max(limit, p.memory_limit[r]);
        }
        constexpr double headroom = 1.12;
        // A limit far above the curves would make the curves flat.
        constexpr double far_above = 3.0;
        top_ = headroom * (limit <= far_above * peak ? std::max(limit, peak) : peak);
        if (top_ <= memory_size{}) top_ = memory_size{1.0};
    }

    [[nodiscard]] bool shows_limit() const {
        return std::any_of(p_->memory_limit.begin(), p_->memory_limit.end(), [&](auto l) { return l <= top_; });
    }

    void draw(svg_canvas& canvas, const svg_layout& layout, rank r) const {
        const double floor = layout.memory_y(r) + layout.memory_height;
        const double end = layout.left + layout.plot_width;
        const auto y = [&](memory_size level) { return floor - level / top_ * layout.memory_height; };
        const auto& curve = timeline_->ranks[r].device_memory;
        canvas.text("side", layout.left - 8, floor - layout.memory_height / 2 + 3.3, "memory");
        canvas.path("memory", path(curve, layout, y));
        if (plan_) canvas.path("planned", path(plan_->ranks[r].device_memory, layout, y));
        canvas.line("floor", layout.left, floor, end, floor);
        const auto limit = p_->memory_limit[r];
        if (limit <= top_) canvas.line("limit", layout.left, y(limit), end, y(limit));
        const auto peak = peak_of(curve);
        const auto at =
            std::find_if(curve.begin(), curve.end(), [&](const auto& point) { return point.level == peak; });
        if (at != curve.end()) canvas.circle("summit", layout.x(at->time), y(peak), layout.ranks <= 16 ? 2.2 : 1.4);
        const double middle = layout.memory_y(r) + layout.memory_height / 2;
        const auto written = numbers(layout, r);
        for (std::size_t i = 0; i < written.size(); ++i) {
            const double below = written.size() == 1 ? 3.3 : i == 0 ? -2.0 : layout.small_size() + 0.5;
            canvas.text(written[i].style, end + 8, middle + below, written[i].text);
        }
    }

    struct styled_text {
        std::string_view style;
        std::string text;
    };
    /// The text next to a rank's curve, in one or two lines.
    [[nodiscard]] std::vector<styled_text> numbers(const svg_layout& layout, rank r) const {
        constexpr int digits = 4;
        const auto limit = p_->memory_limit[r];
        const auto peak = peak_of(timeline_->ranks[r].device_memory);
        const std::string_view style = peak > limit + tolerance{}.at(p_->memory_scale()) ? "over" : "peak";
        if (limit.is_unlimited()) return {{style, "peak " + format_number(peak, digits)}};
        if (layout.memory_height < 2.2 * layout.small_size())
            return {{style, format_number(peak, digits) + " of " + format_number(limit, digits)}};
        return {{"over", "limit " + format_number(limit, digits)}, {style, "peak " + format_number(peak, digits)}};
    }

private:
    template <class Level>
    static std::string path(const std::vector<memory_point>& curve, const svg_layout& layout, Level y) {
        const auto number = [](double value) { return svg_canvas::coordinate(value); };
        std::string data = "M" + number(layout.left) + " " + number(y(memory_size{}));
        for (const auto& point : thinned(curve, duration{0.4 / layout.pixels_per_time}))
            data += "H" + number(layout.x(point.time)) + "V" + number(y(point.level));
        return data + "H" + number(layout.left + layout.plot_width) + "V" + number(y(memory_size{})) + "Z";
    }

    const problem* p_;
    const timeline* timeline_;
    const timeline* plan_;
    memory_size top_{};
};

} // namespace optpipe::detail
