#pragma once

#include "optpipe/core/compiled.hpp"
#include "optpipe/core/outcome.hpp"
#include "optpipe/core/quantity.hpp"
#include "optpipe/io/text_differences.hpp"
#include "optpipe/io/text_grid.hpp"
#include "optpipe/io/text_storage.hpp"
#include "optpipe/io/text_table.hpp"
#include "optpipe/pipeline/problem.hpp"
#include "optpipe/schedule/time/report.hpp"

#include <cstddef>
#include <iosfwd>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace optpipe {

/// The measures of a method's schedule, or the reason why there is no schedule.
struct comparison_row {
    std::string method;
    std::optional<measures> result;
    std::string reason;
    std::optional<double> planning_seconds;
};

[[nodiscard]] comparison_row make_comparison_row(const schedule_report& report,
                                                 std::optional<double> planning_seconds = {});

/// The reason in the problem's units, such as "rank 0 needs 6 GB of memory, its limit is 5 GB".
[[nodiscard]] std::string reason_text(const problem& p, const refusal& why);

[[nodiscard]] comparison_row make_comparison_row(const problem& p, std::string method, const refusal& why,
                                                 std::optional<double> planning_seconds = {});

/// The result of another method, as shown in the verdict on a plan.
struct baseline {
    std::string method;
    /// Excess of the method's objective over the plan's, such as "+11.0 %". Empty if the method has no schedule.
    std::string excess{};
    /// The reason why the method has no schedule.
    std::string reason{};
};

/// Makes the entry of a method for the verdict on a plan. `objective` is the plan's objective.
[[nodiscard]] baseline make_baseline(const comparison_row& row, duration objective);

/// One line with the objective, its distance from the bound, bubbles, memory, offloads, pairs and recomputation. A
/// second line compares the objectives of other methods. Each reason for a missing schedule takes another line.
[[nodiscard]] std::string verdict(const problem& p, const schedule_report& report,
                                  const std::vector<baseline>& others = {});

/// A table of methods, in the given order. The peak memory is that of the rank closest to its limit. The rate of
/// recomputation appears if the problem has options other than keep and offload.
[[nodiscard]] std::vector<table_row> comparison_table(const problem& p, const std::vector<comparison_row>& rows);

/// Writes the table of methods.
void write_comparison(std::ostream& out, const problem& p, const std::vector<comparison_row>& rows);

} // namespace optpipe

#if OPTPIPE_DEFINES(io)
#include "optpipe/core/format.hpp"
#include "optpipe/core/tolerance.hpp"
#include "optpipe/io/escape.hpp"
#include "optpipe/io/timeline.hpp"

#include <algorithm>
#include <ostream>
#include <utility>

namespace optpipe {

OPTPIPE_INLINE comparison_row make_comparison_row(const schedule_report& report,
                                                  std::optional<double> planning_seconds) {
    return {report.method, report.measures, "", planning_seconds};
}

OPTPIPE_INLINE std::string reason_text(const problem& p, const refusal& why) {
    const bool is_host = why.reason == refusal_reason::over_host_memory;
    if (why.reason != refusal_reason::over_memory && !is_host) return describe(why);
    const auto unit = detail::with_space(printable(p.memory_unit, 20));
    return std::string{why.sentence} + (why.sentence.empty() ? "" : ": ") + "rank " + std::to_string(why.rank.value()) +
           " needs " + format_number(why.needed) + unit + (is_host ? " of host memory" : " of memory") +
           ", its limit is " + format_number(why.limit) + unit;
}

OPTPIPE_INLINE comparison_row make_comparison_row(const problem& p, std::string method, const refusal& why,
                                                  std::optional<double> planning_seconds) {
    return {std::move(method), std::nullopt, reason_text(p, why), planning_seconds};
}
namespace detail {

inline std::string bound_text(const problem& p, const schedule_report& report) {
    if (!report.bound) return "no lower bound";
    const auto objective = report.measures.objective;
    const auto excess = objective - *report.bound;
    const auto number = format_number(*report.bound) + with_space(printable(p.time_unit));
    if (excess <= tolerance{}.at(objective)) return "equal to the lower bound, so optimal";
    if (*report.bound <= duration{}) return "lower bound " + number;
    constexpr double least_shown = 0.0005;
    const double share = excess / *report.bound;
    return (share < least_shown ? "under 0.1 %" : percent(share)) + " above the lower bound " + number;
}

/// The rank that comes closest to its memory limit. Without limits, the rank with the largest peak.
inline rank tightest_rank(const problem& p, const measures& m) {
    rank tightest{};
    const auto use = [&](rank r) {
        const auto limit = p.memory_limit[r];
        const bool limited = !limit.is_unlimited() && limit > memory_size{};
        return std::pair{limited ? m.peak_memory[r] / limit : 0.0, m.peak_memory[r]};
    };
    for (const rank r : p.graph.all_ranks())
        if (use(r) > use(tightest)) tightest = r;
    return tightest;
}

inline std::string peak_text(const problem& p, const measures& m) {
    if (m.peak_memory.size() == 0) return "";
    constexpr int digits = 4;
    const rank r = tightest_rank(p, m);
    const auto unit = with_space(printable(p.memory_unit));
    const auto peak = "; peak " + format_number(m.peak_memory[r], digits);
    if (p.memory_limit[r].is_unlimited()) return peak + unit;
    return peak + " of " + format_number(p.memory_limit[r], digits) + unit;
}

inline std::string offloads_text(std::size_t count) {
    if (count == 0) return "";
    return "; " + std::to_string(count) + (count == 1 ? " offload" : " offloads");
}

inline std::string pairs_text(std::size_t count) {
    if (count == 0) return "";
    return "; " + std::to_string(count) + (count == 1 ? " pair" : " pairs");
}

/// The number of recomputations, and the largest share of recomputation in a rank's work.
inline std::string recompute_text(const measures& m) {
    if (m.recomputes == 0) return "";
    return "; " + std::to_string(m.recomputes) + " recomputed, at most " + percent(m.recompute_rate) +
           " of a rank's work";
}

/// Names of methods that have no schedule for the same reason.
struct left_out_methods {
    std::string reason;
    std::string names;
};

inline std::vector<left_out_methods> folded(const std::vector<baseline>& others) {
    std::vector<left_out_methods> groups;
    for (const auto& other : others) {
        if (!other.excess.empty()) continue;
        const auto same = [&](const left_out_methods& group) { return group.reason == other.reason; };
        const auto at = std::find_if(groups.begin(), groups.end(), same);
        if (at == groups.end())
            groups.push_back({other.reason, printable(other.method)});
        else
            at->names += ", " + printable(other.method);
    }
    return groups;
}

} // namespace detail

OPTPIPE_INLINE baseline make_baseline(const comparison_row& row, duration objective) {
    if (!row.result) return {row.method, "", row.reason};
    if (objective <= duration{}) return {row.method, format_number(row.result->objective), ""};
    return {row.method, detail::signed_percent((row.result->objective - objective) / objective), ""};
}

OPTPIPE_INLINE std::string verdict(const problem& p, const schedule_report& report,
                                   const std::vector<baseline>& others) {
    const auto& m = report.measures;
    std::string text = printable(p.name.empty() ? "problem" : p.name) + ": " + format_number(m.objective) +
                       detail::with_space(printable(p.time_unit)) + ", " + detail::bound_text(p, report) + "; bubble " +
                       detail::percent(m.bubble_rate) + detail::peak_text(p, m) + detail::offloads_text(m.offloads) +
                       detail::pairs_text(m.pairs) + detail::recompute_text(m);
    std::string separator = "\nothers: ";
    for (const auto& other : others) {
        if (other.excess.empty()) continue;
        text += separator + printable(other.method) + " " + printable(other.excess);
        separator = ", ";
    }
    for (const auto& group : detail::folded(others))
        text += "\nno schedule by " + group.names + ": " + printable(group.reason, 400);
    return text;
}
namespace detail {

inline std::optional<duration> best_objective(const std::vector<comparison_row>& rows) {
    std::optional<duration> best;
    for (const auto& row : rows)
        if (row.result && (!best || row.result->objective < *best)) best = row.result->objective;
    return best;
}

inline table_row result_cells(const comparison_row& row, const problem& p, duration best) {
    const auto& m = *row.result;
    const bool is_best = m.objective <= best + tolerance{}.at(best);
    constexpr int digits = 4;
    const auto peak = m.peak_memory.size() == 0 ? memory_size{} : m.peak_memory[tightest_rank(p, m)];
    table_row cells{printable(row.method),
                    format_number(m.objective),
                    is_best             ? "best"
                    : best > duration{} ? signed_percent((m.objective - best) / best)
                                        : "",
                    percent(m.bubble_rate),
                    format_number(peak, digits),
                    std::to_string(m.offloads)};
    if (!is_described_by_costs(p)) cells.push_back(percent(m.recompute_rate));
    cells.push_back(row.planning_seconds ? decimal(*row.planning_seconds, 2) : "-");
    return cells;
}

} // namespace detail

OPTPIPE_INLINE std::vector<table_row> comparison_table(const problem& p, const std::vector<comparison_row>& rows) {
    const auto best = detail::best_objective(rows).value_or(duration{});
    std::vector<table_row> lines{{"method", "objective" + detail::in_brackets(printable(p.time_unit)), "above best",
                                  "bubble rate", "peak memory" + detail::in_brackets(printable(p.memory_unit)),
                                  "offloads"}};
    if (!is_described_by_costs(p)) lines.front().push_back("recompute rate");
    lines.front().push_back("planning [s]");
    for (const auto& row : rows)
        lines.push_back(row.result ? detail::result_cells(row, p, best)
                                   : table_row{printable(row.method), printable(row.reason, 400)});
    return lines;
}

OPTPIPE_INLINE void write_comparison(std::ostream& out, const problem& p, const std::vector<comparison_row>& rows) {
    write_table(out, comparison_table(p, rows));
}

} // namespace optpipe
#endif
