#include "commands.hpp"
#include "schedule_file.hpp"
#include <optpipe/optpipe.hpp>

#include <iostream>

namespace program {
namespace {

optpipe::schedule_report read_plan(const optpipe::problem& p, const std::string& path) {
    const auto [document, schedule] = read_schedule_for(p, path);
    if (const auto broken = optpipe::validate(p, schedule); !broken.empty())
        std::cerr << "optpipe: note: the schedule breaks " << broken.size()
                  << " rules, the first: " << broken.front().text() << '\n';
    auto report = optpipe::make_report(p, document.method, schedule);
    // A bound that the file claims is drawn as its author's; nothing is proven here.
    if (document.bound && *document.bound <= report.measures.objective) report.bound = document.bound;
    return report;
}

optpipe::schedule_report read_measurement(const optpipe::problem& p, const optpipe::schedule_report& plan,
                                          const std::string& path) {
    const auto [document, schedule] = read_schedule_for(p, path);
    if (auto violations = optpipe::measurement_violations(plan.schedule, schedule); !violations.empty())
        throw optpipe::input_error{optpipe::printable(path, 400), std::move(violations)};
    return optpipe::make_report(p, document.method, schedule);
}

void draw_overlay(const draw_options& options, const optpipe::problem& p, const optpipe::schedule_report& plan) {
    const auto measured = read_measurement(p, plan, options.measured);
    if (!options.svg.empty()) optpipe::write_file(options.svg, optpipe::overlay_to_svg(p, plan, measured));
    if (!options.trace.empty()) optpipe::write_file(options.trace, optpipe::overlay_to_chrome_trace(p, plan, measured));
    optpipe::write_overlay_grid(std::cout, p, plan, measured);
    optpipe::write_differences(std::cout, p, optpipe::compare_kinds(plan.schedule, measured.schedule));
}

} // namespace

int draw(const draw_options& options) {
    if (options.svg.empty() && options.trace.empty() && options.measured.empty())
        throw optpipe::error{"draw: nothing to write; give --svg, --trace or --measured"};
    const auto p = optpipe::read_problem(options.problem);
    const auto plan = read_plan(p, options.schedule);
    if (!options.measured.empty()) return draw_overlay(options, p, plan), success;
    if (!options.svg.empty()) optpipe::write_file(options.svg, optpipe::schedule_to_svg(p, plan));
    if (!options.trace.empty()) optpipe::write_file(options.trace, optpipe::schedule_to_chrome_trace(p, plan));
    return success;
}

} // namespace program
