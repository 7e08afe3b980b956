#pragma once

#include "optpipe/core/format.hpp"
#include "optpipe/io/escape.hpp"
#include "optpipe/io/timeline.hpp"
#include "optpipe/pipeline/problem.hpp"
#include "optpipe/schedule/operation.hpp"
#include "optpipe/schedule/report.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <initializer_list>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

namespace optpipe {

struct grid_options {
    /// Columns of a line.
    std::size_t width = 160;
    /// A schedule that needs more lines per rank than this to show its labels is shown without them, on one line.
    std::size_t most_bands = 8;
    bool transfers = true;
};

namespace detail {

/// How times map to columns.
struct grid_scale {
    double columns_per_time = 1.0;
    bool labelled = true;

    [[nodiscard]] std::size_t column(duration t) const {
        return static_cast<std::size_t>(std::max(0.0, std::round(t.value() * columns_per_time)));
    }
};

/// One line of the grid, over the whole schedule.
struct grid_lane {
    std::string name;
    std::vector<const std::vector<timed_operation>*> lists;
    char idle = ' ';
    std::string cells;
};

/// One of the schedules that a grid shows below each other, and what stands behind the names of its lanes.
struct grid_subject {
    const optpipe::schedule* schedule;
    std::string suffix;
};

class grid {
public:
    grid(const grid&) = delete; // its lanes point into its timelines
    grid& operator=(const grid&) = delete;
    grid(const problem& p, const std::vector<grid_subject>& subjects, const grid_options& options) : options_{options} {
        timelines_.reserve(subjects.size());
        for (const auto& [shown, suffix] : subjects) {
            timelines_.push_back(timeline_of(p, *shown));
            suffixes_.push_back(suffix);
            end_ = std::max(end_, timelines_.back().end);
        }
        for (const rank r : p.graph.all_ranks())
            name_lanes(r, p.transfer.engines);
        axis_name_ = "time" + in_brackets(printable(p.time_unit, 20));
        gutter_ = axis_name_.size() + 2;
        for (const auto& lane : lanes_)
            gutter_ = std::max(gutter_, lane.name.size() + 2);
        columns_ = std::max<std::size_t>(options.width, gutter_ + 20) - gutter_;
        choose_scale();
        for (auto& lane : lanes_)
            fill(lane);
    }

    [[nodiscard]] const grid_scale& scale() const { return scale_; }
    [[nodiscard]] std::size_t bands() const { return (length() + columns_ - 1) / columns_; }

    void write_band(std::ostream& out, std::size_t band) const {
        const auto from = band * columns_;
        write_line(out, axis_name_, axis().substr(from, columns_));
        for (const auto& lane : lanes_)
            write_line(out, lane.name, lane.cells.substr(from, columns_));
    }

private:
    /// Three quarters of the labels fit with a column to spare, if the bands for it are few enough.
    void choose_scale() {
        std::vector<double> durations;
        std::size_t label = 1;
        for (const auto& each : timelines_)
            for (const auto& lists : each.ranks)
                for (const auto& timed : lists.compute) {
                    durations.push_back((timed.end - timed.start).value());
                    label = std::max(label, to_string(timed.op).size() + 1);
                }
        if (durations.empty()) return;
        const auto quarter = durations.begin() + static_cast<std::ptrdiff_t>(durations.size() / 4);
        std::nth_element(durations.begin(), quarter, durations.end());
        const double end = end_.value();
        const double wanted = *quarter > 0.0 ? static_cast<double>(label) / *quarter : 0.0;
        scale_.labelled = wanted > 0.0 && wanted * end <= static_cast<double>(columns_ * options_.most_bands);
        scale_.columns_per_time = scale_.labelled ? wanted : end > 0.0 ? static_cast<double>(columns_) / end : 1.0;
    }

    [[nodiscard]] std::size_t length() const { return std::max<std::size_t>(1, scale_.column(end_)); }

    void name_lanes(rank r, int engines) {
        using lists = rank_timeline;
        name_lane(r, "rank " + std::to_string(r.value()), '.', {&lists::compute});
        const auto travel = [](const timeline& t) { return t.has_transfers(); };
        if (!options_.transfers || std::none_of(timelines_.begin(), timelines_.end(), travel)) return;
        if (engines == 1) {
            name_lane(r, "  host", ' ', {&lists::offloads, &lists::reloads});
        } else {
            name_lane(r, "  offload", ' ', {&lists::offloads});
            name_lane(r, "  reload", ' ', {&lists::reloads});
        }
    }
    void name_lane(rank r, const std::string& name, char idle,
                   std::initializer_list<std::vector<timed_operation> rank_timeline::*> shown) {
        for (std::size_t i = 0; i < timelines_.size(); ++i) {
            lanes_.push_back({name + suffixes_[i], {}, idle, {}});
            for (const auto list : shown)
                lanes_.back().lists.push_back(&(timelines_[i].ranks[r].*list));
        }
    }

    void fill(grid_lane& lane) const {
        lane.cells.assign(length(), lane.idle);
        for (const auto* list : lane.lists)
            for (const auto& timed : *list)
                draw(lane.cells, timed);
    }

    void draw(std::string& cells, const timed_operation& timed) const {
        const auto from = std::min(scale_.column(timed.start), cells.size() - 1);
        const auto to = std::min(std::max(scale_.column(timed.end), from + 1), cells.size());
        const char letter = spelling(timed.op.kind).front();
        const auto in_band = std::min(to, band_end(from)) - from;
        const auto text = scale_.labelled ? label(timed.op, in_band) : std::string(to - from, letter);
        for (std::size_t i = from; i < to; ++i)
            cells[i] = i - from < text.size() ? text[i - from] : '-';
    }

    [[nodiscard]] std::size_t band_end(std::size_t column) const { return (column / columns_ + 1) * columns_; }

    /// The longest spelling that leaves a column free.
    static std::string label(const operation& op, std::size_t width) {
        const std::string letter(1, spelling(op.kind).front());
        const auto brief = letter + std::to_string(op.microbatch.value());
        const auto full = to_string(op);
        return full.size() < width ? full : brief.size() < width ? brief : letter;
    }

    [[nodiscard]] std::string axis() const {
        constexpr double least_columns = 10.0;
        std::string text(length(), ' ');
        const double step = round_step(least_columns / scale_.columns_per_time);
        for (std::size_t i = 0;; ++i) {
            const duration at{static_cast<double>(i) * step};
            const auto column = scale_.column(at);
            const auto mark = "|" + format_number(at);
            if (column + mark.size() > text.size()) return text;
            if (column + mark.size() <= band_end(column)) text.replace(column, mark.size(), mark);
        }
    }

    void write_line(std::ostream& out, std::string name, std::string cells) const {
        name.resize(std::max(gutter_, name.size()), ' ');
        auto line = name + cells;
        line.erase(line.find_last_not_of(' ') + 1);
        out << line << '\n';
    }

    grid_options options_;
    std::vector<timeline> timelines_;
    std::vector<std::string> suffixes_;
    duration end_{};
    std::string axis_name_;
    std::size_t gutter_ = 0;
    std::size_t columns_ = 0;
    grid_scale scale_;
    std::vector<grid_lane> lanes_;
};

inline void write_cells(std::ostream& out, const problem& p, const std::string& method, const grid& cells) {
    const auto unit = with_space(printable(p.time_unit));
    out << printable(p.name) << ", " << printable(method) << ": one column is "
        << format_number(1.0 / cells.scale().columns_per_time, 3) << unit;
    if (!cells.scale().labelled) out << "; too long for labels, each letter is a kind of operation";
    if (cells.bands() > 1) out << "; shown in " << cells.bands() << " parts";
    out << '\n';
    for (std::size_t band = 0; band < cells.bands(); ++band) {
        if (band > 0) out << '\n';
        cells.write_band(out, band);
    }
}

} // namespace detail

/// The schedule over time, a line per rank and below it what travels to its host and back. A cell is as wide as its
/// operation is long, and labelled `2F0`, in narrow cells `F0` or `F`; dots are bubbles. What is longer than a line
/// goes on below; what would take very many lines is shown on one, where a letter stands for the kind that runs.
inline void write_grid(std::ostream& out, const problem& p, const schedule_report& report,
                       const grid_options& options = {}) {
    detail::write_cells(out, p, report.method, detail::grid{p, {{&report.schedule, ""}}, options});
}

/// The same for a measurement and its plan: each line twice, as planned and as it ran.
inline void write_overlay_grid(std::ostream& out, const problem& p, const schedule_report& planned,
                               const schedule_report& measured, const grid_options& options = {}) {
    const std::vector<detail::grid_subject> both{{&planned.schedule, " plan"}, {&measured.schedule, " run"}};
    detail::write_cells(out, p, measured.method, detail::grid{p, both, options});
}

} // namespace optpipe
