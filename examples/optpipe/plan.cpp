#include "commands.hpp"
#include "methods.hpp"

#include <algorithm>
#include <iostream>
#include <optional>
#include <string>

#include <optpipe/optpipe.hpp>

namespace program {
namespace {

const attempt* best_of(const std::vector<attempt>& attempts, const optpipe::problem& p) {
    const attempt* best = nullptr;
    for (const auto& a : attempts)
        if (a.result && (!best || optpipe::objective_of(p, *a.result) < optpipe::objective_of(p, *best->result))) best = &a;
    return best;
}

/// The adaptive planner gives up only where nothing fits; others say what they lack themselves.
const attempt& most_telling(const std::vector<attempt>& attempts) {
    const auto found = std::find_if(attempts.begin(), attempts.end(), [](const attempt& a) { return a.method == optpipe::adaptive.name; });
    return found == attempts.end() ? attempts.back() : *found;
}

void write_files(const plan_options& options, const optpipe::problem& p, const optpipe::schedule_report& report) {
    if (!options.out.empty()) optpipe::write_file(options.out, optpipe::schedule_to_json(p, report));
    if (!options.svg.empty()) optpipe::write_file(options.svg, optpipe::schedule_to_svg(p, report));
    if (!options.trace.empty()) optpipe::write_file(options.trace, optpipe::schedule_to_chrome_trace(p, report));
}

}  // namespace

std::string method_names() {
    std::string names;
    optpipe::for_each_builder([&](const auto& builder) { names += (names.empty() ? "" : ", ") + std::string{builder.name}; });
    return names;
}

int plan(const plan_options& options) {
    const auto p = optpipe::read_problem(options.problem);
    // A method may come with parameters, as in gis:g=3.
    const auto colon = options.method.find(':');
    const auto method = options.method.substr(0, colon);
    std::optional<std::string> settings;
    if (colon != std::string::npos) settings = options.method.substr(colon + 1);
    const bool all = options.method.empty() || options.method == "best";
    const auto attempts = run_methods(
        p, [&](std::string_view name) { return all || name == method; }, {settings, options.time_limit, options.seed});
    if (attempts.empty()) {
        std::cerr << "optpipe: --method: there is no \"" << optpipe::printable(options.method) << "\"; there are best, " << method_names() << '\n';
        return bad_input;
    }
    const auto* best = best_of(attempts, p);
    if (!best) {
        const auto& last = most_telling(attempts);
        std::cerr << "optpipe: " << optpipe::printable(options.problem, 400) << ": " << last.method << ": " << optpipe::describe(last.result.why()) << '\n';
        return no_schedule;
    }
    const auto report = optpipe::make_report(p, best->method, *best->result, optpipe::bounds_of(p).best());
    write_files(options, p, report);
    if (options.quiet) return success;

    std::vector<optpipe::baseline> others;
    for (const auto& a : attempts)
        if (&a != best) others.push_back(optpipe::make_baseline(row_of(p, a), report.measures.objective));
    optpipe::write_grid(std::cout, p, report);
    std::cout << optpipe::verdict(p, report, others) << '\n';
    return success;
}

}  // namespace program
