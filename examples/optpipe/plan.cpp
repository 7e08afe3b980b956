#include "commands.hpp"
#include "methods.hpp"
#include <optpipe/optpipe.hpp>

#include <algorithm>
#include <chrono>
#include <iostream>
#include <optional>
#include <string>
#include <string_view>
#include <vector>
#if defined(OPTPIPE_HAS_MILP)
#include "progress.hpp"
#include <optpipe/planner.hpp>

#include <unistd.h>
#endif

namespace program {
namespace {

const attempt* best_of(const std::vector<attempt>& attempts, const optpipe::problem& p) {
    const attempt* best = nullptr;
    for (const auto& a : attempts)
        if (a.result && (!best || optpipe::objective_of(p, *a.result) < optpipe::objective_of(p, *best->result)))
            best = &a;
    return best;
}

/// The adaptive planner gives up only where nothing fits; others say what they lack themselves.
const attempt& most_telling(const std::vector<attempt>& attempts) {
    const auto found = std::find_if(attempts.begin(), attempts.end(),
                                    [](const attempt& a) { return a.method == optpipe::adaptive.name; });
    return found == attempts.end() ? attempts.back() : *found;
}

/// What isn't, `compare` lists.
bool is_made_for_it(const optpipe::refusal& why) { return why.reason != optpipe::refusal_reason::does_not_apply; }

int refuse(const plan_options& options, const std::string& reason) {
    std::cerr << "optpipe: " << optpipe::printable(options.problem, 400) << ": " << reason << '\n';
    return no_schedule;
}

void write_files(const plan_options& options, const optpipe::problem& p, const optpipe::schedule_report& report) {
    if (!options.out.empty()) optpipe::write_file(options.out, optpipe::schedule_to_json(p, report));
    if (!options.svg.empty()) optpipe::write_file(options.svg, optpipe::schedule_to_svg(p, report));
    if (!options.trace.empty()) optpipe::write_file(options.trace, optpipe::schedule_to_chrome_trace(p, report));
}

void print(const optpipe::problem& p, const optpipe::schedule_report& report, const std::string& story,
           const std::vector<optpipe::baseline>& others) {
    optpipe::write_grid(std::cout, p, report);
    std::cout << story << optpipe::verdict(p, report, others) << '\n';
}

int plan_by_method(const plan_options& options, const optpipe::problem& p) {
    // A method may come with parameters, as in gis:g=3.
    const auto colon = options.method.find(':');
    const auto method = options.method.substr(0, colon);
    std::optional<std::string> settings;
    if (colon != std::string::npos) settings = options.method.substr(colon + 1);
    const bool all = options.method.empty() || options.method == "best";
    const auto attempts = run_methods(p, [&](std::string_view name) { return all || name == method; },
                                      {settings, options.time_limit, options.seed});
    if (attempts.empty()) {
        std::cerr << "optpipe: --method: there is no \"" << optpipe::printable(options.method) << "\"; there are best, "
                  << method_names() << '\n';
        return bad_input;
    }
    const auto* best = best_of(attempts, p);
    if (!best) {
        const auto& last = most_telling(attempts);
        return refuse(options, last.method + ": " + optpipe::describe(last.result.why()));
    }
    const auto report = optpipe::make_report(p, best->method, *best->result, optpipe::bounds_of(p).best());
    write_files(options, p, report);
    if (options.quiet) return success;
    std::vector<optpipe::baseline> others;
    for (const auto& a : attempts)
        if (&a != best && (a.result || is_made_for_it(a.result.why())))
            others.push_back(optpipe::make_baseline(row_of(p, a), report.measures.objective));
    print(p, report, "", others);
    return success;
}

#if defined(OPTPIPE_HAS_MILP)

optpipe::plan_options options_from(const plan_options& given) {
    optpipe::plan_options options;
    if (given.time_limit) options.time_limit = std::chrono::duration<double>{*given.time_limit};
    options.threads = given.threads;
    options.seed = given.seed;
    options.gap = given.gap;
    options.deterministic = given.deterministic;
    options.without = given.without;
    options.cache = given.cache;
    options.warn = [](std::string_view sentence) {
        std::cerr << "optpipe: note: " << optpipe::printable(sentence, 400) << '\n';
    };
    return options;
}

/// Who found what, one line each: "local-search   2 schedules, the best 943.2; 0.31 s".
std::string story_of(const optpipe::plan_result& planned) {
    std::string text;
    for (const auto& part : planned.parts) {
        if (part.schedules == 0 && part.bounds == 0) continue;
        std::string finds;
        if (part.schedules > 0)
            finds = std::to_string(part.schedules) + (part.schedules == 1 ? " schedule, " : " schedules, the best ") +
                    optpipe::format_number(part.objective);
        if (part.bounds > 0) finds += (finds.empty() ? "" : "; ") + ("bound " + optpipe::format_number(part.bound));
        text += part.name + std::string(part.name.size() < 15 ? 15 - part.name.size() : 1, ' ') + finds + "; " +
                optpipe::format_number(part.seconds, 3) + " s\n";
    }
    text += std::string{optpipe::text_of(planned.why)} + " after " + optpipe::format_number(planned.seconds, 3) + " s";
    if (const auto* published = optpipe::best_published(planned))
        text += "; the best published schedule is " + published->method + "'s, " +
                optpipe::format_number(*published->objective);
    return text + '\n';
}

optpipe::baseline baseline_of(const optpipe::builder_result& b, optpipe::duration objective) {
    if (!b.objective) return {b.method, optpipe::describe(b.why)};
    optpipe::comparison_row row{b.method, optpipe::measures{}, "", b.seconds};
    row.result->objective = *b.objective;
    return optpipe::make_baseline(row, objective);
}

int plan_by_search(const plan_options& options, const optpipe::problem& p) {
    auto search = options_from(options);
    std::optional<progress_line> line;
    if (options.progress || (!options.quiet && ::isatty(STDERR_FILENO) == 1)) {
        line.emplace();
        search.progress = [&line](const optpipe::search_step& step) { line->show(step); };
    }
    const auto planned = optpipe::plan(p, search);
    line.reset();
    if (!planned) return refuse(options, optpipe::describe(planned.why()));
    const auto report = optpipe::report_of(p, *planned);
    write_files(options, p, report);
    if (options.quiet) return success;
    std::vector<optpipe::baseline> others;
    for (const auto& b : planned->builders)
        if (b.method != planned->method && (b.objective || is_made_for_it(b.why)))
            others.push_back(baseline_of(b, planned->objective));
    print(p, report, story_of(*planned), others);
    return success;
}

#endif

} // namespace

int plan(const plan_options& options) {
    const auto p = optpipe::read_problem(options.problem);
#if defined(OPTPIPE_HAS_MILP)
    if (options.method.empty() || options.method == "best") return plan_by_search(options, p);
#endif
    return plan_by_method(options, p);
}

} // namespace program
