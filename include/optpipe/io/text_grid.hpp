#pragma once

#include "optpipe/core/compiled.hpp"
#include "optpipe/io/view_window.hpp"
#include "optpipe/pipeline/problem.hpp"
#include "optpipe/schedule/time/report.hpp"

#include <cstddef>
#include <iosfwd>

namespace optpipe {

struct grid_options {
    /// Number of columns per line.
    std::size_t width = 100;
    /// Largest number of lines per rank. A longer schedule shows its start and end in full, and the middle in one line.
    std::size_t most_bands = 8;
    /// Number of lines per rank for each of the two ends of a folded schedule.
    std::size_t end_bands = 2;
    bool transfers = true;
    view_window window{};
};

/// Writes the schedule as text, with time from left to right. Each rank has a line for its computations. Copy engines
/// in use have lines of their own. The number of columns shows an operation's duration. An operation's label is `2F0`,
/// or `F0` or `F` in less space. The label of a pair is `2F5;3B1`, `F5;B1`, or the letter P. Dots are bubbles.
///
/// A schedule longer than a line continues below. A schedule with too many lines shows its start and end in full, and
/// the middle in one line. If no label fits, the entire schedule is on one line. A line without labels shows the kind's
/// letter in each column, and `+` for several kinds.
void write_grid(std::ostream& out, const problem& p, const schedule_report& report, const grid_options& options = {});

/// Writes the grid of a measurement and its plan. Each line appears twice: planned and measured.
void write_overlay_grid(std::ostream& out, const problem& p, const schedule_report& planned,
                        const schedule_report& measured, const grid_options& options = {});

} // namespace optpipe

#if OPTPIPE_DEFINES(io)
#include "optpipe/core/format.hpp"
#include "optpipe/io/escape.hpp"
#include "optpipe/io/timeline.hpp"
#include "optpipe/schedule/operation.hpp"
#include "optpipe/schedule/pair.hpp"

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

namespace optpipe {
namespace detail {

/// Converts times to columns.
struct grid_scale {
    duration begin{};
    double columns_per_time = 1.0;

    /// Doubles represent every column exactly up to this number.
    static constexpr double most_columns = 1e15;

    [[nodiscard]] std::size_t column(duration t) const {
        const double column = std::round((t - begin).value() * columns_per_time);
        return column > 0.0 ? static_cast<std::size_t>(std::min(column, most_columns)) : 0;
    }
    [[nodiscard]] duration time(std::size_t column) const {
        return begin + duration{static_cast<double>(column) / columns_per_time};
    }
};

/// A section of time on the page. If not `labelled`, each column has only the letter of a kind.
struct grid_section {
    grid_scale scale;
    bool labelled = true;
    view_window window{};
    /// Columns on the scale: the range shown, and the end of the scale.
    std::size_t from = 0;
    std::size_t to = 0;
    std::size_t end = 0;
};

/// One line of the grid, for the entire schedule.
struct grid_lane {
    std::string name;
    std::vector<const std::vector<timed_operation>*> lists;
    char idle = ' ';
};

/// One of the schedules that a grid shows. `suffix` is added to the names of the schedule's lanes.
struct grid_subject {
    const optpipe::schedule* schedule;
    std::string suffix;
};

/// Shown in a column that has operations of several kinds.
inline constexpr char mixed_kinds = '+';

/// The label of a pair without space for two names.
inline constexpr char pair_letter = 'P';

/// The columns of one lane in one band.
class grid_cells {
public:
    grid_cells(const grid_lane& lane, const grid_section& section, std::size_t from, std::size_t to)
        : section_{&section}, from_{from}, to_{to}, text_(to - from, lane.idle), taken_(to - from, 0) {
        for (const auto* list : lane.lists)
            for (const auto& timed : *list)
                if (section.window.shows(timed) && !is_second_part(timed.op)) take(timed);
        if (!section.labelled) return;
        for (const auto* list : lane.lists)
            for (std::size_t i = 0; i < list->size(); ++i)
                if (section.window.shows((*list)[i])) label(*list, i);
    }

    [[nodiscard]] const std::string& text() const { return text_; }
    [[nodiscard]] bool has_mixed() const { return text_.find(mixed_kinds) != std::string::npos; }

private:
    /// The columns of an operation in this band. At least one column if the operation begins in the band.
    [[nodiscard]] std::pair<std::size_t, std::size_t> columns_of(const timed_operation& timed) const {
        const auto first = std::min(section_->scale.column(timed.start), section_->end - 1);
        const auto last = std::min(std::max(section_->scale.column(timed.end), first + 1), section_->end);
        return {std::max(first, from_), std::min(last, to_)};
    }
    void take(const timed_operation& timed) {
        const char letter = timed.op.is_paired ? pair_letter : letter_of(timed.op.kind);
        const auto [first, last] = columns_of(timed);
        for (auto column = first; column < last; ++column) {
            auto& taken = taken_[column - from_];
            auto& shown = text_[column - from_];
            shown = taken > 0 && shown != letter ? mixed_kinds : letter;
            taken = taken > 0 ? 2 : 1;
        }
    }
    /// Labels an operation in the columns that no other operation shares. The label of a pair names the forward and the
    /// backward.
    void label(const std::vector<timed_operation>& list, std::size_t i) {
        const auto& timed = list[i];
        if (is_second_part(timed.op)) return;
        const auto* partner = timed.op.is_paired && i + 1 < list.size() ? &list[i + 1].op : nullptr;
        auto [first, last] = columns_of(timed);
        const auto is_shared = [&](std::size_t column) { return taken_[column - from_] > 1; };
        const bool begins_here = section_->scale.column(timed.start) >= from_;
        while (first < last && is_shared(first))
            ++first;
        if (first >= last) return;
        const auto text = begins_here ? spelled(timed.op, partner, last - first) : std::string{};
        for (auto column = first; column < last && !is_shared(column); ++column)
            text_[column - from_] = column - first < text.size() ? text[column - first] : '-';
    }
    /// The longest label that leaves a column free, or else the letter alone.
    static std::string spelled(const operation& op, const operation* partner, std::size_t width) {
        const std::string letter(1, partner ? pair_letter : letter_of(op.kind));
        const auto brief = brief_label(op) + (partner ? ";" + brief_label(*partner) : "");
        const auto full = full_label(op) + (partner ? ";" + full_label(*partner) : "");
        return full.size() < width ? full : brief.size() < width ? brief : letter;
    }
    static std::string brief_label(const operation& op) {
        return letter_of(op.kind) + std::to_string(op.microbatch.value());
    }
    static std::string full_label(const operation& op) {
        return op.kind == operation_kind::recompute ? short_spelling(op) : to_string(op);
    }

    const grid_section* section_;
    std::size_t from_;
    std::size_t to_;
    std::string text_;
    /// Number of operations per column: none, one or several.
    std::vector<char> taken_;
};

class grid {
public:
    grid(const grid&) = delete; // not copyable, because the lanes point to the timelines of this object
    grid& operator=(const grid&) = delete;
    grid(const problem& p, const std::vector<grid_subject>& subjects, const grid_options& options) : options_{options} {
        timelines_.reserve(subjects.size());
        for (const auto& [shown, suffix] : subjects) {
            timelines_.push_back(timeline_of(p, *shown, options.window));
            suffixes_.push_back(suffix);
            end_ = std::max(end_, timelines_.back().end);
        }
        begin_ = std::min(std::max(options.window.from, duration{}), end_);
        for (const rank r : p.graph.all_ranks())
            if (options.window.shows(r)) name_lanes(r, p.transfer.engines);
        unit_ = with_space(printable(p.time_unit, 20));
        axis_name_ = "time" + in_brackets(printable(p.time_unit, 20));
        gutter_ = axis_name_.size() + 2;
        for (const auto& lane : lanes_)
            gutter_ = std::max(gutter_, lane.name.size() + 2);
        columns_ = std::max<std::size_t>(options.width, gutter_ + 20) - gutter_;
        choose_sections();
    }

    void write(std::ostream& out, const std::string& title) const {
        out << title << ": one column is " << column_text(sections_.front());
        if (!sections_.front().labelled)
            out << "; too long for labels, each letter is a kind of operation";
        else if (is_folded())
            out << "; of " << bands_ << " parts the first and the last " << options_.end_bands
                << " are shown in full, the others folded into one";
        else if (bands_ > 1)
            out << "; shown in " << bands_ << " parts";
        if (has_pairs()) out << "; " << pair_letter << " is a forward and a backward at once";
        out << '\n';
        bool has_mixed = false;
        for (const auto& section : sections_) {
            if (&section != &sections_.front()) out << '\n';
            if (is_folded() && !section.labelled)
                out << "folded: " << format_number(section.scale.begin) << " to " << format_number(section.window.to)
                    << unit_ << ", one column is " << column_text(section) << ", each letter is a kind of operation\n";
            for (auto from = section.from; from < section.to; from += columns_) {
                if (from > section.from) out << '\n';
                has_mixed = write_band(out, section, from, std::min(from + columns_, section.to)) || has_mixed;
            }
        }
        if (has_mixed) out << mixed_kinds << " is a column with operations of several kinds\n";
    }

private:
    [[nodiscard]] bool is_folded() const { return sections_.size() > 1; }
    [[nodiscard]] bool has_pairs() const {
        return std::any_of(timelines_.begin(), timelines_.end(), [](const timeline& each) {
            return std::any_of(each.ranks.begin(), each.ranks.end(),
                               [](const rank_timeline& lists) { return optpipe::has_pairs(lists.compute); });
        });
    }
    [[nodiscard]] std::string column_text(const grid_section& section) const {
        return format_number(1.0 / section.scale.columns_per_time, 3) + unit_;
    }

    /// The columns per unit of time at which three quarters of the labels fit, or 0 if that is impossible.
    [[nodiscard]] double labelled_scale() const {
        std::vector<double> durations;
        std::size_t label = 1;
        for (const auto& each : timelines_)
            for (const auto& lists : each.ranks)
                for (const auto& timed : lists.compute) {
                    if (timed.op.is_paired) continue; // a pair's label and duration are about twice as long
                    durations.push_back((timed.end - timed.start).value());
                    label = std::max(label, short_spelling(timed.op).size() + 1);
                }
        if (durations.empty()) return 1.0;
        const auto quarter = durations.begin() + static_cast<std::ptrdiff_t>(durations.size() / 4);
        std::nth_element(durations.begin(), quarter, durations.end());
        return *quarter > 0.0 ? static_cast<double>(label) / *quarter : 0.0;
    }

    void choose_sections() {
        const double wanted = labelled_scale();
        const double length = wanted * (end_ - begin_).value();
        if (wanted > 0.0 && length <= grid_scale::most_columns) {
            const grid_scale scale{begin_, wanted};
            const auto end = std::max<std::size_t>(1, scale.column(end_));
            bands_ = (end + columns_ - 1) / columns_;
            if (bands_ <= std::max(options_.most_bands, 2 * options_.end_bands))
                return sections_.push_back({scale, true, {}, 0, end, end});
            if (options_.end_bands > 0) return fold(scale, end);
        }
        bands_ = 1;
        sections_.push_back(overview(begin_, end_));
    }
    void fold(const grid_scale& scale, std::size_t end) {
        const auto head = options_.end_bands * columns_;
        const auto tail = end - head;
        sections_.push_back({scale, true, {}, 0, head, end});
        sections_.push_back(overview(scale.time(head), scale.time(tail)));
        sections_.push_back({scale, true, {}, tail, end, end});
    }
    /// A section that shows a time span on one line.
    [[nodiscard]] grid_section overview(duration from, duration to) const {
        const double length = (to - from).value();
        grid_section all{{from, length > 0.0 ? static_cast<double>(columns_) / length : 1.0}, false, {}, 0, 0, 0};
        all.window.from = is_begin(from) ? all.window.from : from;
        all.window.to = to < end_ ? to : duration::unlimited();
        all.to = all.end = std::clamp<std::size_t>(all.scale.column(to), 1, columns_);
        return all;
    }
    [[nodiscard]] bool is_begin(duration t) const { return t <= begin_; }

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
            lanes_.push_back({name + suffixes_[i], {}, idle});
            for (const auto list : shown)
                lanes_.back().lists.push_back(&(timelines_[i].ranks[r].*list));
        }
    }

    /// Writes the given columns of all lanes. Returns whether a column shows operations of several kinds.
    bool write_band(std::ostream& out, const grid_section& section, std::size_t from, std::size_t to) const {
        write_line(out, axis_name_, axis(section, from, to));
        bool has_mixed = false;
        for (const auto& lane : lanes_) {
            const grid_cells cells{lane, section, from, to};
            write_line(out, lane.name, cells.text());
            has_mixed = has_mixed || cells.has_mixed();
        }
        return has_mixed;
    }

    [[nodiscard]] static std::string axis(const grid_section& section, std::size_t from, std::size_t to) {
        constexpr double least_columns = 10.0;
        std::string text(to - from, ' ');
        const double step = round_step(least_columns / section.scale.columns_per_time);
        const double first = std::floor(section.scale.time(from).value() / step);
        for (std::size_t i = 0; i <= text.size(); ++i) {
            const duration at{(first + static_cast<double>(i)) * step};
            const auto column = section.scale.column(at);
            if (at < section.scale.begin || column < from) continue;
            const auto mark = "|" + format_number(at);
            if (column + mark.size() <= to) text.replace(column - from, mark.size(), mark);
        }
        return text;
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
    duration begin_{};
    duration end_{};
    std::string unit_;
    std::string axis_name_;
    std::size_t gutter_ = 0;
    std::size_t columns_ = 0;
    std::size_t bands_ = 1;
    std::vector<grid_section> sections_;
    std::vector<grid_lane> lanes_;
};

inline std::string grid_title(const problem& p, const std::string& method) {
    return (p.name.empty() ? "" : printable(p.name) + ", ") + printable(method);
}

} // namespace detail

OPTPIPE_INLINE void write_grid(std::ostream& out, const problem& p, const schedule_report& report,
                               const grid_options& options) {
    detail::grid{p, {{&report.schedule, ""}}, options}.write(out, detail::grid_title(p, report.method));
}

OPTPIPE_INLINE void write_overlay_grid(std::ostream& out, const problem& p, const schedule_report& planned,
                                       const schedule_report& measured, const grid_options& options) {
    const std::vector<detail::grid_subject> both{{&planned.schedule, " plan"}, {&measured.schedule, " run"}};
    detail::grid{p, both, options}.write(out, detail::grid_title(p, measured.method));
}

} // namespace optpipe
#endif
