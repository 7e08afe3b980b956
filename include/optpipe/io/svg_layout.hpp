#pragma once

#include "optpipe/io/svg_canvas.hpp"
#include "optpipe/io/svg_options.hpp"
#include "optpipe/io/timeline.hpp"
#include "optpipe/pipeline/problem.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <string>
#include <vector>

namespace optpipe {
namespace detail {

/// Positions and sizes in the figure, in pixels.
struct svg_layout {
    double left = 96.0;
    double right = 84.0;
    double top = 96.0;
    double plot_width = 0.0;
    double pixels_per_time = 1.0;
    double compute_height = 0.0;
    double transfer_height = 0.0; ///< 0 if transfers aren't shown
    double memory_height = 0.0;   ///< 0 if memory isn't shown
    double gap = 0.0;
    double rank_gap = 0.0;
    /// Height of a plan's row relative to the lane below. 0 if the figure shows no plan.
    double plan_share = 0.0;
    std::size_t ranks = 0;
    std::size_t first_rank = 0;
    duration begin{};
    /// Width of the plot if no width is requested.
    double wanted_width = 0.0;
    double time = 0.0;

    /// Adapts the figure to new widths of the texts at its left and right. `width` is the requested width of the
    /// figure, or 0.
    void widen(double new_left, double new_right, double width) {
        left = new_left;
        right = new_right;
        plot_width = width > 0.0 ? std::max(100.0, width - left - right) : wanted_width;
        constexpr double shortest = 1e-300; // smaller numbers might have an infinite inverse
        if (time > shortest) pixels_per_time = plot_width / time;
    }

    [[nodiscard]] double x(duration t) const { return left + (t - begin).value() * pixels_per_time; }
    [[nodiscard]] double width_of(duration d) const { return d.value() * pixels_per_time; }
    [[nodiscard]] double plan_height(double lane_height) const { return plan_share * lane_height; }
    [[nodiscard]] double rank_height() const {
        return (1.0 + plan_share) * (compute_height + transfer_height) + (transfer_height > 0 ? gap : 0) +
               (memory_height > 0 ? gap + memory_height : 0);
    }
    [[nodiscard]] double rank_y(rank r) const {
        return top + static_cast<double>(r.position() - first_rank) * (rank_height() + rank_gap);
    }
    [[nodiscard]] double compute_y(rank r) const { return rank_y(r) + plan_height(compute_height); }
    [[nodiscard]] double transfer_y(rank r) const {
        return compute_y(r) + compute_height + gap + plan_height(transfer_height);
    }
    [[nodiscard]] double memory_y(rank r) const { return rank_y(r) + rank_height() - memory_height; }
    [[nodiscard]] double bottom() const {
        return top + static_cast<double>(ranks) * (rank_height() + rank_gap) - rank_gap + 6.0;
    }
    [[nodiscard]] double page_width() const { return left + plot_width + right; }
    [[nodiscard]] double page_height() const { return bottom() + 44.0; }
    [[nodiscard]] double most_label_size() const { return std::min(10.0, 0.55 * compute_height); }
    [[nodiscard]] double small_size() const { return ranks <= 16 ? 9.5 : 8.5; }
};

/// The layout of a figure. `plan` is shown above the lanes, or is null.
inline svg_layout layout_of(const problem& p, const timeline& t, const svg_options& options,
                            const timeline* plan = nullptr) {
    struct heights {
        std::size_t most_ranks;
        double compute, transfer, memory, gap, rank_gap;
    };
    constexpr std::array rows{heights{4, 26, 13, 46, 3, 16}, heights{8, 22, 11, 32, 3, 13},
                              heights{16, 16, 8, 22, 2, 10}, heights{32, 12, 6, 15, 2, 8},
                              heights{64, 9, 4, 9, 1.5, 5}};
    const auto last = std::min(options.window.last_rank, p.graph.ranks() - 1);
    const auto shown = last + 1 - std::min(options.window.first_rank, last);
    const auto fits = [&](const heights& h) { return shown <= h.most_ranks; };
    auto row = std::find_if(rows.begin(), rows.end(), fits);
    if (row == rows.end()) --row;

    svg_layout layout;
    layout.ranks = shown;
    layout.first_rank = last + 1 - shown;
    layout.begin = t.begin;
    layout.compute_height = row->compute;
    layout.transfer_height =
        options.transfers && (t.has_transfers() || (plan && plan->has_transfers())) ? row->transfer : 0.0;
    layout.memory_height = options.memory ? row->memory : 0.0;
    layout.gap = row->gap;
    layout.rank_gap = row->rank_gap;
    if (plan) layout.plan_share = 0.5;

    std::size_t operations = 0;
    for (const auto& lists : t.ranks)
        operations = std::max(operations, lists.compute.size());
    constexpr double pixels_per_operation = 24.0;
    layout.wanted_width = std::clamp(pixels_per_operation * static_cast<double>(operations), 720.0, 1800.0);
    layout.time = (t.end - t.begin).value();
    layout.widen(layout.left, layout.right, options.width);
    return layout;
}

/// Operations drawn as one box: a single operation, or consecutive operations that are too narrow.
struct svg_box {
    duration start{};
    duration end{};
    operation first{};
    operation last{};
    std::size_t count = 1;
};

inline std::vector<svg_box> boxes_of(const std::vector<timed_operation>& operations, const svg_layout& layout) {
    constexpr double least_width = 0.5;
    std::vector<svg_box> boxes;
    const auto narrow = [&](duration d) { return layout.width_of(d) < least_width; };
    for (const auto& timed : operations) {
        // Narrow operations share a box until the box is as wide as a pixel. A wider box would hide colours and
        // bubbles.
        if (!boxes.empty() && narrow(timed.end - timed.start) && narrow(boxes.back().end - boxes.back().start) &&
            narrow(timed.start - boxes.back().end)) {
            auto& run = boxes.back();
            run.end = std::max(run.end, timed.end);
            run.last = timed.op;
            ++run.count;
        } else {
            boxes.push_back({timed.start, timed.end, timed.op, timed.op, 1});
        }
    }
    return boxes;
}

/// The curve with at most one point per `step`. Each point has the highest level within its step.
inline std::vector<memory_point> thinned(const std::vector<memory_point>& curve, duration step) {
    std::vector<memory_point> result;
    memory_size after{};
    const auto settle = [&](duration before) {
        if (result.empty() || after == result.back().level) return;
        result.push_back({std::min(result.back().time + step, before), after});
    };
    for (const auto& point : curve) {
        if (result.empty() || point.time - result.back().time >= step) {
            settle(point.time);
            result.push_back(point);
        }
        result.back().level = std::max(result.back().level, point.level);
        after = point.level;
    }
    if (!curve.empty()) settle(duration::unlimited());
    return result;
}

} // namespace detail
} // namespace optpipe
