#pragma once

#include "optpipe/core/container.hpp"
#include "optpipe/core/format.hpp"
#include "optpipe/core/tolerance.hpp"
#include "optpipe/io/svg_canvas.hpp"
#include "optpipe/io/svg_labels.hpp"
#include "optpipe/io/svg_layout.hpp"
#include "optpipe/io/timeline.hpp"
#include "optpipe/pipeline/problem.hpp"
#include "optpipe/schedule/operation.hpp"
#include "optpipe/schedule/report.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace optpipe {
namespace detail {

class svg_figure {
public:
    svg_figure(const problem& p, const schedule_report& report, const svg_options& options)
        : p_{&p}, report_{&report}, timeline_{timeline_of(p, report.schedule)},
          layout_{layout_of(p, timeline_, options)}, labels_{labels_of(p, timeline_, layout_, options)},
          position_(p.graph.stages()) {
        const auto stages = stages_by_rank(p.graph);
        for (const auto& of_rank : stages) {
            shades_ = std::max(shades_, of_rank.size());
            for (std::size_t i = 0; i < of_rank.size(); ++i)
                position_[of_rank[i]] = i;
        }
        choose_memory_scale();
    }

    std::string draw() && {
        begin();
        title();
        legend();
        axis();
        for (const rank r : p_->graph.all_ranks()) {
            compute_lane(r);
            transfer_lane(r);
            memory_lane(r);
        }
        bound_line();
        canvas_.add("</svg>\n");
        return std::move(canvas_).take();
    }

private:
    /// One scale for all ranks, so that they can be compared. A limit far above is left out rather than flatten all.
    void choose_memory_scale() {
        memory_size peak{};
        memory_size limit{};
        for (const rank r : p_->graph.all_ranks()) {
            peak = std::max(peak, peak_of(timeline_.ranks[r].device_memory));
            if (!p_->memory_limit[r].is_unlimited()) limit = std::max(limit, p_->memory_limit[r]);
        }
        constexpr double headroom = 1.12;
        constexpr double far_above = 3.0;
        memory_top_ = headroom * (limit <= far_above * peak ? std::max(limit, peak) : peak);
        if (memory_top_ <= memory_size{}) memory_top_ = memory_size{1.0};
    }

    void begin() {
        const auto width = svg_canvas::coordinate(layout_.page_width());
        const auto height = svg_canvas::coordinate(layout_.page_height());
        canvas_.add("<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"" + width + "\" height=\"" + height +
                    "\" viewBox=\"0 0 " + width + " " + height + "\">\n");
        std::size_t operations = 0;
        for (const auto& lists : timeline_.ranks)
            operations = std::max(operations, lists.compute.size());
        const bool outlined = layout_.plot_width > 5.0 * static_cast<double>(operations);
        canvas_.add(svg_style(shades_, labels_.size, layout_.small_size(), outlined));
        canvas_.rectangle("page", 0, 0, layout_.page_width(), layout_.page_height());
    }

    void title() {
        const auto& m = report_->measures;
        const auto unit = with_space(p_->time_unit);
        const auto name = p_->name.empty() ? std::string{"schedule"} : printable(p_->name);
        canvas_.text("title", layout_.left, 26,
                     name + (report_->method.empty() ? "" : " · " + printable(report_->method)));
        std::string facts = p_->objective == objective_kind::span ? "span " : "makespan ";
        facts += format_number(m.objective) + unit;
        if (report_->bound) facts += "  ·  bound " + format_number(*report_->bound) + unit;
        if (const auto gap = report_->gap()) facts += "  ·  gap " + fixed_number(100.0 * *gap, 1) + " %";
        facts += "  ·  bubble rate " + fixed_number(100.0 * m.bubble_rate, 1) + " %";
        if (m.offloads > 0)
            facts += "  ·  " + std::to_string(m.offloads) + (m.offloads == 1 ? " offload" : " offloads");
        canvas_.text("facts", layout_.left, 45, facts);
    }

    void legend() {
        double x = layout_.left;
        for (const auto kind : all_operation_kinds)
            if (occurs(kind)) legend_entry(x, kind_styles(kind), legend_name(kind));
        legend_entry(x, {"bubble"}, "bubble");
        if (layout_.memory_height > 0) legend_of_memory(x);
        if (shades_ > 1) legend_entry(x -= 18.0, {}, "(light to dark: the stages of a rank, in order)");
    }

    void legend_of_memory(double& x) {
        legend_entry(x, {"memory"}, "device memory" + in_brackets(printable(p_->memory_unit, 20)));
        if (!shows_limit()) return;
        canvas_.line("limit", x, 61.5, x + 22, 61.5);
        x += 8;
        legend_entry(x, {}, "memory limit");
    }

    void legend_entry(double& x, const std::vector<std::string>& styles, std::string_view name) {
        constexpr double width = 14.0;
        const double each = width / static_cast<double>(std::max<std::size_t>(styles.size(), 1));
        for (std::size_t i = 0; i < styles.size(); ++i)
            canvas_.rectangle(styles[i], x + static_cast<double>(i) * each, 56, each, 11);
        x += width + 4.0;
        canvas_.text("legend", x, 65.5, name);
        x += 16.0 + 5.9 * static_cast<double>(name.size());
    }

    [[nodiscard]] std::vector<std::string> kind_styles(operation_kind kind) const {
        std::vector<std::string> styles;
        for (std::size_t i = 0; i < (is_transfer(kind) ? 1 : shades_); ++i)
            styles.push_back(shade_class(kind, i));
        return styles;
    }

    [[nodiscard]] bool occurs(operation_kind kind) const {
        if (is_transfer(kind) && layout_.transfer_height <= 0) return false;
        const auto& operations = report_->schedule.operations;
        return std::any_of(operations.begin(), operations.end(), [&](const auto& t) { return t.op.kind == kind; });
    }

    [[nodiscard]] bool shows_limit() const {
        return std::any_of(p_->memory_limit.begin(), p_->memory_limit.end(), [&](auto l) { return l <= memory_top_; });
    }

    void axis() {
        const double top = layout_.top - 4;
        const double bottom = layout_.bottom();
        constexpr double least_pixels = 70.0;
        const double step = round_step(least_pixels / layout_.pixels_per_time);
        // Of a schedule that was read, times may be so extreme that no step leads from one end to the other.
        const double steps = std::min(timeline_.end.value() / step * (1.0 + tolerance{}.relative), layout_.plot_width);
        for (std::size_t i = 0; static_cast<double>(i) <= steps; ++i) {
            const duration at{static_cast<double>(i) * step};
            canvas_.line("grid", layout_.x(at), top, layout_.x(at), bottom);
            canvas_.line("axis", layout_.x(at), bottom, layout_.x(at), bottom + 5);
            canvas_.text("tick", layout_.x(at), bottom + 17, format_number(at));
        }
        canvas_.line("axis", layout_.left, bottom, layout_.left + layout_.plot_width, bottom);
        canvas_.text("unit", layout_.left + layout_.plot_width / 2, bottom + 35, "time" + in_brackets(p_->time_unit));
    }

    void box(const svg_box& b, double y, double height) {
        const auto unit = with_space(p_->time_unit);
        auto name = to_string(b.first);
        if (b.count > 1) name += " … " + to_string(b.last) + ", " + std::to_string(b.count) + " operations";
        const auto when = name + ": " + format_number(b.start) + " – " + format_number(b.end) + unit;
        canvas_.rectangle("o " + shade_class(b.first.kind, position_[b.first.stage]), layout_.x(b.start), y,
                          layout_.width_of(b.end - b.start), height, when);
    }

    void box_label(const timed_operation& timed, double y, double height, label_manner manner) {
        const auto text = label_of(timed.op, manner);
        if (text.empty() || !labels_.fit(text, layout_.width_of(timed.end - timed.start))) return;
        const auto fill = shade_of(timed.op.kind, position_[timed.op.stage], shades_);
        canvas_.text(fill.is_dark() ? "light" : "dark", layout_.x(0.5 * (timed.start + timed.end)),
                     y + height / 2 + 0.36 * labels_.size, text);
    }

    void compute_lane(rank r) {
        const double y = layout_.compute_y(r);
        const double height = layout_.compute_height;
        canvas_.text("rank", layout_.left - 8, y + height / 2 + 4, "rank " + std::to_string(r.value()));
        canvas_.rectangle("bubble", layout_.left, y, layout_.width_of(timeline_.end), height);
        for (const auto& b : boxes_of(timeline_.ranks[r].compute, layout_))
            box(b, y, height);
        for (const auto& timed : timeline_.ranks[r].compute)
            box_label(timed, y, height, labels_.manner);
    }

    void transfer_lane(rank r) {
        if (layout_.transfer_height <= 0) return;
        const double y = layout_.transfer_y(r);
        const double height = layout_.transfer_height;
        const auto& lists = timeline_.ranks[r];
        const auto link = link_name(r);
        canvas_.text("side", layout_.left - 8, y + height / 2 + 3.3, link.first, link.second);
        canvas_.rectangle("host", layout_.left, y, layout_.width_of(timeline_.end), height);
        // Two engines may be at work at once: out above, back below.
        const bool halves = p_->transfer.engines == 2;
        const double each = halves ? height / 2 : height;
        for (const auto& b : boxes_of(lists.offloads, layout_))
            box(b, y, each);
        for (const auto& b : boxes_of(lists.reloads, layout_))
            box(b, y + height - each, each);
        if (labels_.manner == label_manner::none || each < labels_.size) return;
        for (const auto* list : {&lists.offloads, &lists.reloads})
            for (const auto& timed : *list)
                box_label(timed, y, height, label_manner::microbatch);
    }

    /// What stands beside the transfers of a rank, and all of it for who points there.
    [[nodiscard]] std::pair<std::string, std::string> link_name(rank r) const {
        std::vector<std::string> sharing;
        for (const rank other : p_->graph.all_ranks())
            if (p_->transfer.link[other] == p_->transfer.link[r]) sharing.push_back(std::to_string(other.value()));
        if (sharing.size() == 1) return {"host link", "a host link of its own"};
        std::string all;
        for (const auto& text : sharing)
            all += (all.empty() ? "" : ", ") + text;
        constexpr std::size_t most_shown = 3;
        const bool brief = sharing.size() > most_shown;
        return {"link of " + (brief ? sharing.front() + " … " + sharing.back() : all),
                "one host link for ranks " + all};
    }

    void memory_lane(rank r) {
        if (layout_.memory_height <= 0) return;
        const double floor = layout_.memory_y(r) + layout_.memory_height;
        const auto y = [&](memory_size level) { return floor - level / memory_top_ * layout_.memory_height; };
        const auto& curve = timeline_.ranks[r].device_memory;
        canvas_.text("side", layout_.left - 8, floor - layout_.memory_height / 2 + 3.3, "memory");
        canvas_.path("memory", memory_path(thinned(curve, duration{0.4 / layout_.pixels_per_time}), y));
        canvas_.line("floor", layout_.left, floor, layout_.left + layout_.plot_width, floor);
        const auto limit = p_->memory_limit[r];
        if (limit <= memory_top_)
            canvas_.line("limit", layout_.left, y(limit), layout_.left + layout_.plot_width, y(limit));
        const auto peak = peak_of(curve);
        const auto at =
            std::find_if(curve.begin(), curve.end(), [&](const auto& point) { return point.level == peak; });
        if (at != curve.end()) canvas_.circle("summit", layout_.x(at->time), y(peak), layout_.ranks <= 16 ? 2.2 : 1.4);
        memory_numbers(r, peak, limit);
    }

    template <class Level>
    [[nodiscard]] std::string memory_path(const std::vector<memory_point>& curve, Level y) const {
        const auto number = [](double value) { return svg_canvas::coordinate(value); };
        std::string data = "M" + number(layout_.left) + " " + number(y(memory_size{}));
        for (const auto& point : curve)
            data += "H" + number(layout_.x(point.time)) + "V" + number(y(point.level));
        return data + "H" + number(layout_.left + layout_.plot_width) + "V" + number(y(memory_size{})) + "Z";
    }

    void memory_numbers(rank r, memory_size peak, memory_size limit) {
        constexpr int digits = 4;
        const double x = layout_.left + layout_.plot_width + 8;
        const double middle = layout_.memory_y(r) + layout_.memory_height / 2;
        const auto slack = tolerance{}.at(p_->memory_scale());
        const auto* style = peak > limit + slack ? "over" : "peak";
        if (limit.is_unlimited()) return canvas_.text(style, x, middle + 3.3, "peak " + format_number(peak, digits));
        if (layout_.memory_height < 2.2 * layout_.small_size())
            return canvas_.text(style, x, middle + 3.3,
                                format_number(peak, digits) + " of " + format_number(limit, digits));
        canvas_.text("over", x, middle - 2, "limit " + format_number(limit, digits));
        canvas_.text(style, x, middle + layout_.small_size() + 0.5, "peak " + format_number(peak, digits));
    }

    void bound_line() {
        // Where the span counts, no moment of the step answers to the bound.
        if (!report_->bound || p_->objective != objective_kind::makespan) return;
        const auto at = *report_->bound;
        if (at <= duration{} || at > timeline_.end * (1.0 + tolerance{}.relative)) return;
        canvas_.line("bound", layout_.x(at), layout_.top - 8, layout_.x(at), layout_.bottom());
        const bool fits_left = layout_.x(at) > layout_.left + layout_.plot_width / 4;
        canvas_.text(fits_left ? "boundname" : "boundname start", layout_.x(at), layout_.top - 11,
                     "lower bound " + format_number(at));
    }

    const problem* p_;
    const schedule_report* report_;
    timeline timeline_;
    svg_layout layout_;
    svg_labels labels_;
    per_stage<std::size_t> position_;
    std::size_t shades_ = 1;
    memory_size memory_top_{};
    svg_canvas canvas_;
};

} // namespace detail

/// The schedule as a figure, a standalone SVG document: for each rank what it computes, what travels to its host and
/// back, and how much memory it holds under its limit. Pointing at a box shows its spelling and its times.
[[nodiscard]] inline std::string schedule_to_svg(const problem& p, const schedule_report& report,
                                                 const svg_options& options = {}) {
    return detail::svg_figure{p, report, options}.draw();
}

} // namespace optpipe
