#include "commands.hpp"
#include "files.hpp"
#include "schedule_file.hpp"
#include "terminal.hpp"
#include <optpipe/core/format.hpp>
#include <optpipe/io/chrome_trace.hpp>
#include <optpipe/io/html.hpp>
#include <optpipe/io/svg.hpp>
#include <optpipe/io/text.hpp>
#include <optpipe/schedule/time/differences.hpp>
#include <optpipe/schedule/time/evaluate.hpp>
#include <optpipe/schedule/time/validate.hpp>

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <iostream>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace program {
namespace {

/// A plan, and whether it breaks no rule.
struct drawn_plan {
    optpipe::schedule_report report;
    bool is_valid = false;
};

drawn_plan read_plan(const optpipe::problem& p, optpipe::schedule_document given, const std::string& path) {
    const auto file = check_schedule_for(p, std::move(given), path);
    const auto& document = file.document;
    const auto broken = violations_in(p, file);
    if (!broken.empty())
        std::cerr << "optpipe: note: the schedule breaks " << broken.size()
                  << " rules, the first: " << broken.front().text() << '\n';
    auto report = optpipe::make_report(p, document.method, file.schedule);
    report.forward_only = document.forward_only;
    // The bound claimed by the file is drawn as is; it isn't proven here.
    if (document.bound && *document.bound <= report.measures.objective) report.bound = document.bound;
    return {std::move(report), broken.empty()};
}

optpipe::schedule_report read_measurement(const optpipe::problem& p, const optpipe::schedule_report& plan,
                                          const std::string& path) {
    const auto [document, schedule] = check_schedule_for(p, read_schedule(path), path);
    if (auto violations = optpipe::measurement_violations(plan.schedule, schedule); !violations.empty())
        throw optpipe::input_error{name_of(path), std::move(violations)};
    return optpipe::make_report(p, document.method, schedule);
}

/// Removes a number from the start of a text.
std::optional<std::size_t> take_number(std::string_view& text) {
    std::size_t number = 0;
    const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), number);
    if (code != std::errc{}) return std::nullopt;
    text.remove_prefix(static_cast<std::size_t>(end - text.data()));
    return number;
}

void restrict_ranks(optpipe::view_window& window, const std::string& ranks, std::size_t count) {
    std::string_view text = ranks;
    const auto first = take_number(text);
    auto last = first;
    if (first && text.starts_with('-')) {
        text.remove_prefix(1);
        last = take_number(text);
    }
    if (!first || !last || !text.empty() || *first > *last)
        throw optpipe::error{"--ranks: must be a rank, or two as in 2-5, is " + optpipe::printable(ranks)};
    if (*last >= count)
        throw optpipe::error{"--ranks: there is no rank " + std::to_string(*last) + ", the last is " +
                             std::to_string(count - 1)};
    window.first_rank = *first;
    window.last_rank = *last;
}

optpipe::view_window window_of(const draw_options& options, const optpipe::problem& p, optpipe::duration end) {
    optpipe::view_window window;
    if (!options.ranks.empty()) restrict_ranks(window, options.ranks, p.graph.ranks());
    if (options.from) window.from = optpipe::duration{*options.from};
    if (options.to) window.to = optpipe::duration{*options.to};
    if (!(window.from < window.to)) throw optpipe::error{"--from must be before --to"};
    if (window.from >= end && options.from)
        throw optpipe::error{"--from: nothing is left to draw, the schedule ends at " + optpipe::format_number(end)};
    return window;
}

} // namespace

int draw(const draw_options& options) {
    outputs files{{{"PROBLEM", options.problem.path}, {"PLAN", options.schedule}, {"--measured", options.measured}},
                  {{"--svg", options.svg}, {"--html", options.html}, {"--trace", options.trace}}};
    const auto given = read_problem(options.problem);
    auto document = read_schedule(options.schedule);
    const auto p = problem_for(given, document);
    const auto [plan, is_valid] = read_plan(p, std::move(document), options.schedule);
    std::optional<optpipe::schedule_report> measured;
    if (!options.measured.empty()) measured = read_measurement(p, plan, options.measured);
    const auto end = std::max(last_end(plan.schedule), measured ? last_end(measured->schedule) : optpipe::duration{});
    const auto window = window_of(options, p, end);

    optpipe::svg_options figure;
    figure.window = window;
    files.write("--svg", [&] {
        return measured ? optpipe::overlay_to_svg(p, plan, *measured, figure)
                        : optpipe::schedule_to_svg(p, plan, figure);
    });
    files.write("--html", [&] {
        optpipe::html_options page;
        page.shows_idle = is_valid && !plan.forward_only;
        if (measured) page.beside = {"measured", *measured};
        return optpipe::schedule_to_html(p, plan, page);
    });
    files.write("--trace", [&] {
        return measured ? optpipe::overlay_to_chrome_trace(p, plan, *measured, window)
                        : optpipe::schedule_to_chrome_trace(p, plan, window);
    });
    optpipe::grid_options grid;
    grid.width = columns();
    grid.window = window;
    if (measured) {
        optpipe::write_overlay_grid(files.text(), p, plan, *measured, grid);
        optpipe::write_differences(files.text(), p, optpipe::compare_kinds(plan.schedule, measured->schedule));
    } else if (options.svg.empty() && options.html.empty() && options.trace.empty()) {
        optpipe::write_grid(files.text(), p, plan, grid);
    }
    return files.status(success);
}

} // namespace program
