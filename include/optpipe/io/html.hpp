#pragma once

#include "optpipe/core/compiled.hpp"
#include "optpipe/core/quantity.hpp"
#include "optpipe/pipeline/problem.hpp"
#include "optpipe/schedule/time/report.hpp"

#include <optional>
#include <string>
#include <vector>

namespace optpipe {

/// The state of a search at one point in time.
struct progress_point {
    std::string strategy;
    double seconds = 0.0;
    /// Objective of the best schedule found by then; empty before the first schedule.
    std::optional<duration> objective{};
    duration bound{};
};

/// A second schedule for comparison, with its name, such as "best published".
struct compared_schedule {
    std::string title;
    schedule_report report;
};

struct html_options {
    /// The name of the main schedule, shown only beside another schedule.
    std::string title = "plan";
    std::optional<compared_schedule> beside{};
    /// The progress of the search over time. `seconds` is the duration of the search.
    std::vector<progress_point> progress{};
    double seconds = 0.0;
    /// Whether to show the idle time of each rank by cause (`idle_times`). If true, the schedule must be valid.
    bool shows_idle = false;
};

/// A page that shows a schedule in any browser. The page has a timeline that can be zoomed and panned. The timeline
/// shows memory, tooltips, and the paths of microbatches. Other panels show idle time by cause, the search, and storage
/// options. The page is a single file.
[[nodiscard]] std::string schedule_to_html(const problem& p, const schedule_report& report,
                                           const html_options& options = {});

} // namespace optpipe

#if OPTPIPE_DEFINES(io)
#include "optpipe/core/format.hpp"
#include "optpipe/io/escape.hpp"
#include "optpipe/io/html_panels.hpp"
#include "optpipe/io/html_rules.hpp"
#include "optpipe/io/html_style.hpp"
#include "optpipe/io/html_timeline.hpp"
#include "optpipe/io/palette.hpp"
#include "optpipe/io/timeline.hpp"
#include "optpipe/io/write_json.hpp"
#include "optpipe/schedule/operation.hpp"
#include "optpipe/schedule/schedule.hpp"
#include "optpipe/schedule/time/idle.hpp"

#include <algorithm>
#include <cstddef>
#include <string_view>

namespace optpipe {
namespace detail {

/// Writes the data of a page as JSON.
class page_data : html_json {
public:
    page_data(const problem& p, const schedule_report& report, const html_options& options)
        : p_{&p}, report_{&report}, options_{&options} {}

    [[nodiscard]] std::string json() const {
        std::vector<std::string> schedules{schedule_of(options_->title, *report_)};
        if (options_->beside) schedules.push_back(schedule_of(options_->beside->title, options_->beside->report));
        std::vector<std::string> ranks;
        for (const stage s : p_->graph.all_stages())
            ranks.push_back(std::to_string(p_->rank_of(s).value()));
        const html_rules rules{*p_};
        const auto text = json_object({{"name", json_quoted(p_->name)},
                                       {"timeUnit", json_quoted(p_->time_unit)},
                                       {"memoryUnit", json_quoted(p_->memory_unit)},
                                       {"objective", json_quoted(spelling(p_->objective))},
                                       {"ranks", std::to_string(p_->graph.ranks())},
                                       {"microbatches", std::to_string(p_->graph.microbatches())},
                                       {"stageRank", list(ranks)},
                                       {"limit", json_sizes(p_->memory_limit)},
                                       {"bound", json_number(report_->bound)},
                                       {"options", option_names()},
                                       {"optionColours", list_of(option_colours, quoted)},
                                       {"rules", rules.tables()},
                                       {"rulesOf", rules.table_numbers()},
                                       {"slices", rules.slices()},
                                       {"schedules", list(schedules)},
                                       {"causes", causes()},
                                       {"idle", idle()},
                                       {"strategies", strategies()},
                                       {"history", history()},
                                       {"seconds", json_number(options_->seconds)}});
        // Escapes `<`, because "</script>" in a name would end the data.
        std::string safe;
        for (const char c : text)
            c == '<' ? safe += "\\u003c" : safe += c;
        return safe;
    }

private:
    static std::string quoted(const colour& c) { return json_quoted(c.text()); }

    [[nodiscard]] std::string schedule_of(const std::string& title, const schedule_report& report) const {
        const auto shown = timeline_of(*p_, report.schedule);
        const auto& m = report.measures;
        return json_object({{"title", json_quoted(title)},
                            {"method", json_quoted(report.method)},
                            {"objective", json_number(m.objective.value())},
                            {"bubble", json_number(m.bubble_rate)},
                            {"end", json_number(shown.end.value())},
                            {"peak", json_sizes(m.peak_memory)},
                            {"hostPeak", json_sizes(m.peak_host_memory)},
                            {"ranks", list_of(shown.ranks, [](const rank_timeline& r) { return operations(r); })},
                            {"device", list_of(shown.ranks, [](const auto& r) { return curve(r.device_memory); })},
                            {"host", list_of(shown.ranks, [](const auto& r) { return curve(r.host_memory); })}});
    }
    /// All operations of a rank as one flat list of numbers. Each operation has six numbers: stage, kind, microbatch,
    /// start, end, storage option. The kind is an index into the script's `kinds`.
    static std::string operations(const rank_timeline& lists) {
        std::vector<std::string> numbers;
        for (const auto* each : {&lists.compute, &lists.offloads, &lists.reloads})
            for (const auto& [op, start, end] : *each)
                for (auto& text : {std::to_string(op.stage.value()), std::to_string(static_cast<unsigned>(op.kind)),
                                   std::to_string(op.microbatch.value()), number(start.value()), number(end.value()),
                                   std::to_string(op.storage)})
                    numbers.push_back(text);
        return list(numbers);
    }
    static std::string curve(const std::vector<memory_point>& points) {
        return list_of(points, [](const memory_point& each) {
            return number(each.time.value()) + "," + number(each.level.value());
        });
    }

    [[nodiscard]] std::string option_names() const {
        return list_of(p_->graph.all_stages(), [&](stage s) {
            std::vector<std::string> names;
            for (std::size_t o = 0; o < p_->storage_options(s); ++o)
                names.push_back(json_quoted(p_->storage_of(s, o).name.view()));
            return list(names);
        });
    }

    static std::string causes() {
        return list_of(all_idle_causes, [](idle_cause cause) { return json_quoted(name_of(cause)); });
    }
    /// For each rank, its compute time, then its idle time by cause. Empty if idle times aren't shown.
    [[nodiscard]] std::string idle() const {
        if (!options_->shows_idle) return "[]";
        const auto sums = sum_by_cause(p_->graph.ranks(), idle_times(*p_, report_->schedule));
        return list_of(p_->graph.all_ranks(), [&](rank r) {
            std::vector<std::string> times{number(report_->measures.busy[r].value())};
            for (const auto cause : all_idle_causes)
                times.push_back(number(sums[r][cause].value()));
            return list(times);
        });
    }

    [[nodiscard]] std::vector<std::string> strategy_names() const {
        std::vector<std::string> names;
        for (const auto& point : options_->progress)
            if (std::find(names.begin(), names.end(), point.strategy) == names.end()) names.push_back(point.strategy);
        return names;
    }
    [[nodiscard]] std::string strategies() const {
        return list_of(strategy_names(), [](const std::string& name) { return json_quoted(name); });
    }
    /// The progress of the search. Each row has the seconds, the objective, the bound, and the index of the strategy.
    [[nodiscard]] std::string history() const {
        const auto names = strategy_names();
        return list_of(options_->progress, [&](const progress_point& point) {
            const auto by = std::find(names.begin(), names.end(), point.strategy) - names.begin();
            return list(
                {number(point.seconds), json_number(point.objective), number(point.bound.value()), std::to_string(by)});
        });
    }

    const problem* p_;
    const schedule_report* report_;
    const html_options* options_;
};

inline constexpr std::string_view html_body = R"html(<header><h1 id="title"></h1><button id="theme"></button></header>
<div id="facts"></div>
<div id="bar">
<span id="which"></span>
<span class="gap" id="chosen"></span>
<button id="all">open or close all ranks</button>
<button id="out" aria-label="zoom out">−</button>
<button id="in" aria-label="zoom in">+</button>
<button id="fit">whole step</button>
</div>
<div id="figure">
<canvas id="map"></canvas>
<canvas id="axis"></canvas>
<div id="chart" tabindex="0" aria-label="timeline"><canvas id="rows"></canvas></div>
</div>
<p id="legend"></p>
<p class="help">Wheel or + and − zoom, dragging or the arrow keys pan, two fingers do both; 0 shows all, Escape
forgets the microbatch. Click an operation to follow its microbatch, a rank to open or close it; [ and ] choose the next
microbatch. Under an open rank: device memory with its limit, then host memory.</p>
<section id="idle" hidden><h2>Idle time by cause</h2></section>
<section id="storage" hidden><h2>Storage options</h2><p id="options"></p><canvas id="grid"></canvas></section>
<section id="search" hidden><h2>Search: objective and bound over time</h2><div id="plot"></div></section>
<div id="tip" hidden></div>
)html";

} // namespace detail

OPTPIPE_INLINE std::string schedule_to_html(const problem& p, const schedule_report& report,
                                            const html_options& options) {
    const auto title = xml_escaped(p.name.empty() ? "schedule" : p.name);
    auto body = std::string{detail::html_body};
    constexpr std::string_view heading = "<h1 id=\"title\">";
    body.insert(body.find(heading) + heading.size(), title);
    return "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
           "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<title>" +
           title + "</title>\n<style>" + detail::palette_style() + std::string{detail::html_style} +
           "</style>\n</head>\n<body>\n" + body + "<script type=\"application/json\" id=\"data\">" +
           detail::page_data{p, report, options}.json() + "</script>\n<script>" + std::string{detail::html_timeline} +
           std::string{detail::html_panels} + "</script>\n</body>\n</html>\n";
}

} // namespace optpipe
#endif
