#pragma once

#include "optpipe/core/container.hpp"
#include "optpipe/core/format.hpp"
#include "optpipe/core/tolerance.hpp"
#include "optpipe/io/svg_canvas.hpp"
#include "optpipe/io/svg_labels.hpp"
#include "optpipe/io/svg_layout.hpp"
#include "optpipe/io/svg_legend.hpp"
#include "optpipe/io/svg_memory.hpp"
#include "optpipe/io/timeline.hpp"
#include "optpipe/pipeline/problem.hpp"
#include "optpipe/schedule/operation.hpp"
#include "optpipe/schedule/pair.hpp"
#include "optpipe/schedule/time/report.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace optpipe::detail {

/// A figure of a schedule or of a measurement. In the figure of a measurement, a row above each lane shows the plan.
class svg_figure {
public:
    svg_figure(const svg_figure&) = delete; // not copyable, because `memory` points to the timelines of this object
    svg_figure& operator=(const svg_figure&) = delete;
    /// `plan` is null if there is no plan.
    svg_figure(const problem& p, const schedule_report& report, const schedule_report* plan, const svg_options& options)
        : p_{&p}, report_{&report}, plan_report_{plan}, timeline_{timeline_of(p, report.schedule, options.window)},
          plan_{plan ? timeline_of(p, plan->schedule, options.window)
                     : timeline{per_rank<rank_timeline>(p.graph.ranks()), {}, {}}},
          memory_{p, timeline_, plan ? &plan_ : nullptr}, window_{options.window}, position_(p.graph.stages()) {
        timeline_.end = std::max(timeline_.end, plan_.end);
        layout_ = layout_of(p, timeline_, options, plan ? &plan_ : nullptr);
        const auto stages = stages_by_rank(p.graph);
        for (const auto& of_rank : stages) {
            shades_ = std::max(shades_, of_rank.size());
            for (std::size_t i = 0; i < of_rank.size(); ++i)
                position_[of_rank[i]] = i;
        }
        make_room(options);
        labels_ = labels_of(p, timeline_, layout_, options);
    }

    std::string draw() && {
        begin();
        header(canvas_);
        axis();
        for (const rank r : p_->graph.all_ranks()) {
            if (!window_.shows(r)) continue;
            compute_lane(r);
            transfer_lane(r);
            memory_lane(r);
        }
        if (plan_report_)
            plan_end_line();
        else
            bound_line();
        canvas_.add("</svg>\n");
        return std::move(canvas_).take();
    }

private:
    void begin() {
        const auto width = svg_canvas::coordinate(layout_.page_width());
        const auto height = svg_canvas::coordinate(layout_.page_height());
        canvas_.add("<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"" + width + "\" height=\"" + height +
                    "\" viewBox=\"0 0 " + width + " " + height + "\">\n");
        std::size_t operations = 0;
        for (const auto& lists : timeline_.ranks)
            operations = std::max(operations, lists.compute.size());
        const bool outlined = layout_.plot_width > 5.0 * static_cast<double>(operations);
        canvas_.add(
            svg_style(shades_, labels_.size, layout_.small_size(), outlined, occurs(operation_kind::recompute)));
        if (plan_report_)
            canvas_.add("<style>.planned{fill:none;stroke:#1a1a1a;stroke-width:1;stroke-dasharray:3 1.5}</style>\n");
        canvas_.rectangle("page", 0, 0, layout_.page_width(), layout_.page_height());
    }

    /// Makes room for the texts beside the lanes, and for the header.
    void make_room(const svg_options& options) {
        constexpr double space = 16.0;
        double left = layout_.left;
        double right = layout_.right;
        for (const rank r : p_->graph.all_ranks()) {
            if (!window_.shows(r)) continue;
            left = std::max(left, space + text_width(link_name(r).first, layout_.small_size()));
            if (layout_.memory_height > 0)
                for (const auto& [style, text] : memory_.numbers(layout_, r))
                    right = std::max(right, space + text_width(text, layout_.small_size()));
        }
        layout_.widen(left, right, options.width);
        svg_canvas unseen;
        layout_.top = header(unseen) + space_below_header;
    }

    /// Draws title, measures and legend. Returns the base line of the last row.
    double header(svg_canvas& canvas) const {
        constexpr double title_size = 17.5; // wide enough for size 16 in bold
        constexpr double facts_size = 12.0;
        const double right = layout_.page_width() - 8.0;
        const double width = right - layout_.left;
        const auto name = p_->name.empty() ? std::string{"schedule"} : printable(p_->name);
        const auto title = name + (report_->method.empty() ? "" : " · " + printable(report_->method));
        const auto shown = cut_to_width(title, width, title_size);
        canvas.text("title", layout_.left, 26, shown, shown == title ? "" : title);
        double y = 45.0;
        for (const auto& line : lines_of(facts(), "  ·  ", width, facts_size)) {
            canvas.text("facts", layout_.left, y, line);
            y += svg_legend::row_height;
        }
        svg_legend legend{canvas, layout_.left, right, y + 4.5, shades_};
        describe(legend);
        return legend.last_row();
    }

    [[nodiscard]] std::vector<std::string> facts() const {
        const auto& m = report_->measures;
        auto all = plan_report_ ? measured_facts() : planned_facts();
        all.push_back("bubble rate " + fixed_number(100.0 * m.bubble_rate, 1) + " %");
        if (m.offloads > 0) all.push_back(std::to_string(m.offloads) + (m.offloads == 1 ? " offload" : " offloads"));
        if (m.recomputes > 0) all.push_back(std::to_string(m.recomputes) + " recomputed");
        if (m.pairs > 0) all.push_back(std::to_string(m.pairs) + (m.pairs == 1 ? " pair" : " pairs"));
        return all;
    }
    [[nodiscard]] std::string objective_name() const {
        return p_->objective == objective_kind::span ? "span " : "makespan ";
    }
    [[nodiscard]] std::vector<std::string> planned_facts() const {
        const auto unit = with_space(time_unit());
        std::vector<std::string> all{objective_name() + format_number(report_->measures.objective) + unit};
        if (report_->bound) all.push_back("bound " + format_number(*report_->bound) + unit);
        if (const auto gap = report_->gap()) all.push_back("gap " + fixed_number(100.0 * *gap, 1) + " %");
        return all;
    }
    [[nodiscard]] std::vector<std::string> measured_facts() const {
        const auto planned = plan_report_->measures.objective;
        const auto measured = report_->measures.objective;
        const auto unit = with_space(time_unit());
        std::vector<std::string> all{"measured " + objective_name() + format_number(measured) + unit,
                                     "planned " + format_number(planned) + unit};
        if (planned > duration{}) all.push_back("ratio " + fixed_number(measured / planned, 3));
        return all;
    }
    [[nodiscard]] std::string time_unit() const { return printable(p_->time_unit, 20); }

    void describe(svg_legend& line) const {
        for (const auto kind : all_operation_kinds)
            if (occurs(kind)) line.kind(kind);
        line.entry({"bubble"}, "bubble");
        if (layout_.memory_height > 0) {
            line.entry({"memory"}, "device memory" + in_brackets(printable(p_->memory_unit, 20)));
            if (memory_.shows_limit()) line.line("limit", "memory limit");
        }
        if (plan_report_) line.line("planned", "planned; narrow rows: the plan");
        if (report_->measures.pairs > 0) line.remark("(two halves: a pair)");
        if (shades_ > 1) line.remark("(light to dark: the stages of a rank, in order)");
    }

    [[nodiscard]] bool occurs(operation_kind kind) const {
        if (is_transfer(kind) && layout_.transfer_height <= 0) return false;
        const auto& operations = report_->schedule.operations;
        return std::any_of(operations.begin(), operations.end(), [&](const auto& t) { return t.op.kind == kind; });
    }

    void axis() {
        const double top = layout_.top - 4;
        const double bottom = layout_.bottom();
        constexpr double least_pixels = 70.0;
        const double step = round_step(least_pixels / layout_.pixels_per_time);
        // `i` is limited, because doubles may be unable to represent `first + 1`.
        const double first = std::ceil(timeline_.begin.value() / step);
        const double last = timeline_.end.value() / step * (1.0 + tolerance{}.relative);
        for (double i = 0.0; first + i <= last && i <= layout_.plot_width; ++i) {
            const duration at{(first + i) * step};
            canvas_.line("grid", layout_.x(at), top, layout_.x(at), bottom);
            canvas_.line("axis", layout_.x(at), bottom, layout_.x(at), bottom + 5);
            canvas_.text("tick", layout_.x(at), bottom + 17, format_number(at));
        }
        canvas_.line("axis", layout_.left, bottom, layout_.left + layout_.plot_width, bottom);
        canvas_.text("unit", layout_.left + layout_.plot_width / 2, bottom + 35, "time" + in_brackets(time_unit()));
    }

    void box(const svg_box& b, double y, double height, const std::string& whose = "") {
        const auto unit = with_space(time_unit());
        auto name = whose + to_string(b.first);
        if (b.count > 1) name += " … " + to_string(b.last) + ", " + std::to_string(b.count) + " operations";
        const auto when = name + ": " + format_number(b.start) + " – " + format_number(b.end) + unit;
        const auto [start, end] = shown_times(b.start, b.end);
        canvas_.rectangle("o " + shade_class(b.first.kind, position_[b.first.stage]), layout_.x(start), y,
                          layout_.width_of(end - start), height, when);
    }

    /// The part of a time span within the window.
    [[nodiscard]] std::pair<duration, duration> shown_times(duration start, duration end) const {
        return {std::max(start, window_.from), std::min(end, window_.to)};
    }

    void box_label(const timed_operation& timed, double y, double height, label_manner manner) {
        const auto text = label_of(timed.op, manner);
        const auto [start, end] = shown_times(timed.start, timed.end);
        if (text.empty() || !labels_.fit(text, layout_.width_of(end - start))) return;
        const auto fill = shade_of(timed.op.kind, position_[timed.op.stage], shades_);
        canvas_.text(fill.is_dark() ? "light" : "dark", layout_.x(0.5 * (start + end)),
                     y + height / 2 + 0.36 * labels_.size, text);
    }

    void compute_row(const rank_timeline& lists, double y, double height, const std::string& whose = "") {
        canvas_.rectangle("bubble", layout_.left, y, layout_.width_of(timeline_.end - timeline_.begin), height);
        std::vector<timed_operation> alone;
        std::vector<timed_operation> forwards;
        std::vector<timed_operation> backwards;
        for (const auto& timed : lists.compute)
            (!timed.op.is_paired ? alone : is_second_part(timed.op) ? backwards : forwards).push_back(timed);
        for (const auto& b : boxes_of(alone, layout_))
            box(b, y, height, whose);
        for (const auto& b : boxes_of(forwards, layout_))
            box(b, y, height / 2, whose);
        for (const auto& b : boxes_of(backwards, layout_))
            box(b, y + height / 2, height / 2, whose);
    }
    /// The vertical position and height of an operation within its lane. In a pair, the forward takes the upper half,
    /// and the backward takes the lower half.
    static std::pair<double, double> place_of(const operation& op, double y, double height) {
        if (!op.is_paired) return {y, height};
        return {is_second_part(op) ? y + height / 2 : y, height / 2};
    }
    void transfer_row(const rank_timeline& lists, double y, double height, const std::string& whose = "") {
        canvas_.rectangle("host", layout_.left, y, layout_.width_of(timeline_.end - timeline_.begin), height);
        const double each = transfer_box_height(height);
        for (const auto& b : boxes_of(lists.offloads, layout_))
            box(b, y, each, whose);
        for (const auto& b : boxes_of(lists.reloads, layout_))
            box(b, y + height - each, each, whose);
    }
    /// Height of the box of a transfer. With two engines, offloads take the upper half of the row, and reloads the
    /// lower half.
    [[nodiscard]] double transfer_box_height(double row_height) const {
        return p_->transfer.engines == 2 ? row_height / 2 : row_height;
    }
    /// Height of the plan's row above its lane.
    [[nodiscard]] double plan_height(double lane_height) const {
        constexpr double space = 1.0;
        return layout_.plan_height(lane_height) - space;
    }
    [[nodiscard]] double plan_y(double lane_y, double lane_height) const {
        return lane_y - layout_.plan_height(lane_height);
    }

    void compute_lane(rank r) {
        const double y = layout_.compute_y(r);
        const double height = layout_.compute_height;
        canvas_.text("rank", layout_.left - 8, y + height / 2 + 4, "rank " + std::to_string(r.value()));
        if (plan_report_) compute_row(plan_.ranks[r], plan_y(y, height), plan_height(height), "planned ");
        compute_row(timeline_.ranks[r], y, height);
        for (const auto& timed : timeline_.ranks[r].compute) {
            const auto [top, high] = place_of(timed.op, y, height);
            if (labels_.size <= high) box_label(timed, top, high, labels_.manner);
        }
    }

    void transfer_lane(rank r) {
        if (layout_.transfer_height <= 0) return;
        const double y = layout_.transfer_y(r);
        const double height = layout_.transfer_height;
        const auto& lists = timeline_.ranks[r];
        const auto link = link_name(r);
        canvas_.text("side", layout_.left - 8, y + height / 2 + 3.3, link.first, link.second);
        if (plan_report_) transfer_row(plan_.ranks[r], plan_y(y, height), plan_height(height), "planned ");
        transfer_row(lists, y, height);
        if (labels_.manner == label_manner::none || transfer_box_height(height) < labels_.size) return;
        for (const auto* list : {&lists.offloads, &lists.reloads})
            for (const auto& timed : *list)
                box_label(timed, y, height, label_manner::microbatch);
    }

    /// The label of a rank's transfers, and the full text for the tooltip.
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
        if (layout_.memory_height > 0) memory_.draw(canvas_, layout_, r);
    }

    void bound_line() {
        if (report_->bound) moment(*report_->bound, "lower bound");
    }
    void plan_end_line() { moment(plan_report_->measures.objective, "planned"); }

    /// Draws a line at the time `at`. Draws nothing for the objective `span`, which isn't a point in time.
    void moment(duration at, const std::string& name) {
        if (p_->objective != objective_kind::makespan) return;
        if (at <= timeline_.begin || at > timeline_.end * (1.0 + tolerance{}.relative)) return;
        canvas_.line("bound", layout_.x(at), layout_.top - 8, layout_.x(at), layout_.bottom());
        const auto text = name + " " + format_number(at);
        const double width = text_width(text, svg_legend::font_size);
        const bool fits_left =
            layout_.x(at) > layout_.left + layout_.plot_width / 4 || layout_.x(at) + width > layout_.page_width();
        const double x = fits_left ? std::max(layout_.x(at), width + 4.0) : layout_.x(at);
        canvas_.text(fits_left ? "boundname" : "boundname start", x, layout_.top - 11, text);
    }

    static constexpr double space_below_header = 30.5;

    const problem* p_;
    const schedule_report* report_;
    const schedule_report* plan_report_;
    timeline timeline_;
    timeline plan_;
    svg_memory memory_;
    view_window window_;
    svg_layout layout_;
    svg_labels labels_;
    per_stage<std::size_t> position_;
    std::size_t shades_ = 1;
    svg_canvas canvas_;
};

} // namespace optpipe::detail
