#include "commands.hpp"
#include "files.hpp"
#include "interruption.hpp"
#include "methods.hpp"
#include "plan_json.hpp"
#include "schedule_file.hpp"
#include "terminal.hpp"
#include <optpipe/io/chrome_trace.hpp>
#include <optpipe/io/html.hpp>
#include <optpipe/io/svg.hpp>
#include <optpipe/io/text.hpp>
#include <optpipe/io/write_json.hpp>
#include <optpipe/schedule/bounds/structural_bounds.hpp>
#include <optpipe/schedule/construct/forward_only.hpp>
#include <optpipe/schedule/construct/forward_plan.hpp>
#include <optpipe/schedule/time/evaluate.hpp>
#include <optpipe/schedule/time/report.hpp>

#include <algorithm>
#include <chrono>
#include <iostream>
#include <optional>
#include <string>
#include <string_view>
#include <vector>
#if defined(OPTPIPE_HAS_MILP)
#include "progress.hpp"
#include <optpipe/planner/plan.hpp>

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

/// The constructive planner gives up only where nothing fits; others say what they lack themselves.
const attempt& most_telling(const std::vector<attempt>& attempts) {
    const auto found = std::find_if(attempts.begin(), attempts.end(), is_constructive);
    return found == attempts.end() ? attempts.back() : *found;
}

/// What isn't, `compare` lists.
bool is_made_for_it(const optpipe::refusal& why) { return why.reason != optpipe::refusal_reason::does_not_apply; }

int refuse(const plan_options& options, const optpipe::problem& p, const std::string& reason) {
    if (options.json) std::cout << json_of_refusal(p, reason);
    std::cerr << "optpipe: " << name_of(options.problem) << ": " << reason << '\n';
    return no_schedule;
}

void write_files(outputs& files, const optpipe::problem& p, const optpipe::schedule_report& report,
                 const optpipe::html_options& page) {
    files.write("--html", [&] { return optpipe::schedule_to_html(p, report, page); });
    files.write("--out", [&] { return optpipe::schedule_to_json(p, report); });
    files.write("--svg", [&] { return optpipe::schedule_to_svg(p, report); });
    files.write("--trace", [&] { return optpipe::schedule_to_chrome_trace(p, report); });
}

void print(std::ostream& out, const optpipe::problem& p, const optpipe::schedule_report& report,
           const std::string& story, const std::vector<optpipe::baseline>& others) {
    optpipe::grid_options grid;
    grid.width = columns();
    optpipe::write_grid(out, p, report, grid);
    optpipe::write_storage_uses(out, p, report.schedule);
    out << story << optpipe::verdict(p, report, others) << '\n';
}

std::string unit_of(const optpipe::problem& p) {
    return p.time_unit.empty() ? "" : " " + optpipe::printable(p.time_unit, 20);
}

/// Without a search: its options are refused.
int plan_forward_only(const plan_options& options, outputs& files, const optpipe::problem& given) {
    const auto refuse_option = [](bool is_there, const std::string& name) {
        if (is_there) throw optpipe::error{name + ": forwards alone are planned without a search; leave it out"};
    };
    refuse_option(!options.method.empty(), "--method");
    refuse_option(options.time_limit.has_value(), "--time-limit");
    refuse_option(!options.start.empty(), "--start");
    refuse_option(!options.cache.empty(), "--cache");
    refuse_option(options.noise.has_value(), "--noise");
    const auto p = optpipe::forward_problem(given);
    const auto report = optpipe::plan_forwards(given);
    write_files(files, p, report, {});
    const int status = files.status(success);
    if (options.json) std::cout << json_of(p, report, std::vector<attempt>{});
    if (!options.json && !options.quiet) print(files.text(), p, report, "", {});
    return status;
}

int plan_by_method(const plan_options& options, outputs& files, const optpipe::problem& p) {
    // A method may come with parameters, as in gis:g=3.
    const auto colon = options.method.find(':');
    const auto method = options.method.substr(0, colon);
    // Or with a storage option, as in 1f1b:storage=full.
    std::optional<std::string> settings;
    if (colon != std::string::npos) settings = options.method.substr(colon + 1);
    const bool all = options.method.empty() || options.method == "best";
    const interruption interrupted{!options.quiet};
    const auto attempts = run_methods(p, [&](std::string_view name) { return all || name == method; },
                                      {settings, !all, options.time_limit, options.seed, interrupted.token()});
    if (attempts.empty() && interrupted.is_requested()) return stopped_by_signal;
    if (attempts.empty()) {
        std::cerr << "optpipe: --method: there is no \"" << optpipe::printable(options.method) << "\"; there are best, "
                  << method_names() << '\n';
        return bad_input;
    }
    const auto* best = best_of(attempts, p);
    if (!best) {
        const auto& last = most_telling(attempts);
        return refuse(options, p, last.method + ": " + optpipe::reason_text(p, last.result.why()));
    }
    const auto report = optpipe::make_report(p, best->method, *best->result, optpipe::bounds_of(p).best());
    write_files(files, p, report, {});
    const int status = files.status(interrupted.is_requested() ? stopped_by_signal : success);
    if (options.json) std::cout << json_of(p, report, attempts);
    if (options.json || options.quiet) return status;
    std::vector<optpipe::baseline> others;
    for (const auto& a : attempts)
        if (&a != best && (a.result || is_made_for_it(a.result.why())))
            others.push_back(optpipe::make_baseline(row_of(p, a), report.measures.objective));
    print(files.text(), p, report, "", others);
    return status;
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
    if (given.noise) {
        options.robust.emplace();
        options.robust->noise.spread = *given.noise;
        options.robust->percentile = given.percentile.value_or(options.robust->percentile);
    }
    options.cache = given.cache;
    options.warn = [](std::string_view sentence) {
        std::cerr << "optpipe: note: " << optpipe::printable(sentence, 400) << '\n';
    };
    return options;
}

/// The order in a file, with the times that it has in this problem.
optpipe::schedule read_start(const optpipe::problem& p, const std::string& path) {
    auto timed = optpipe::retime(p, read_schedule_for(p, path).schedule);
    if (!timed) throw optpipe::error{name_of(path) + ": " + optpipe::reason_text(p, timed.why())};
    return *std::move(timed);
}

/// The part of the limit that is left to the search: what is written takes time as well, which counts where there are
/// hundreds of thousands of operations. At least half.
std::chrono::duration<double> time_to_search(const plan_options& options, const optpipe::problem& p, double limit) {
    // Per operation, as measured on one core for 400,000 stages × microbatches.
    constexpr double to_print = 2e-7;
    constexpr double to_json = 5e-7;
    constexpr double to_svg = 1e-7;
    constexpr double to_trace = 1.3e-6;
    const auto operations = static_cast<double>(5 * p.graph.stages() * p.graph.microbatches());
    const double each = (options.quiet ? 0.0 : to_print) + (options.out.empty() ? 0.0 : to_json) +
                        (options.svg.empty() ? 0.0 : to_svg) + (options.trace.empty() ? 0.0 : to_trace);
    return std::chrono::duration<double>{std::max(0.5 * limit, limit - operations * each)};
}

/// "local-search   2 schedules, the best 943.2 ms; bound 940 ms; 0.31 s".
std::string line_of(const optpipe::contribution& by, const std::string& unit) {
    constexpr std::size_t column = 15;
    std::string finds;
    if (by.schedules > 0)
        finds = std::to_string(by.schedules) + (by.schedules == 1 ? " schedule, " : " schedules, the best ") +
                optpipe::format_number(by.objective) + unit;
    if (by.bounds > 0) finds += (finds.empty() ? "" : "; ") + ("bound " + optpipe::format_number(by.bound)) + unit;
    return by.name + std::string(by.name.size() < column ? column - by.name.size() : 1, ' ') + finds + "; " +
           optpipe::format_number(by.seconds, 3) + " s\n";
}

std::string cache_text(const optpipe::plan_result& planned) {
    if (is_from_cache(planned)) return "; the plan is from cache";
    switch (planned.cached) {
    case optpipe::cache_use::none: return "";
    case optpipe::cache_use::exact: return "; the search began with a plan from cache";
    case optpipe::cache_use::near: return "; the search began with plans of similar problems from cache";
    }
    return "";
}

/// "95th percentile with noise 1010 ms (mean 980 ms); without regard to noise 1025 ms (mean 981 ms), planned 950 ms".
std::string robust_text(const optpipe::robust_result& numbers, double percentile, const std::string& unit) {
    const auto text = [&](optpipe::duration t) { return optpipe::format_number(t) + unit; };
    return "with noise: percentile " + optpipe::format_number(percentile, 4) + " is " + text(numbers.percentile) +
           ", mean " + text(numbers.mean) + "; of the plan for no noise " + text(numbers.nominal_percentile) +
           ", mean " + text(numbers.nominal_mean) + ", planned " + text(numbers.nominal_objective) + '\n';
}

/// What found what, one line each, and why the search ended.
std::string story_of(const optpipe::problem& p, const optpipe::plan_result& planned) {
    const auto unit = unit_of(p);
    std::string text;
    for (const auto& by : planned.contributions)
        if (by.schedules > 0 || by.bounds > 0) text += line_of(by, unit);
    text += std::string{optpipe::text_of(planned.why)} + " after " + optpipe::format_number(planned.seconds, 3) + " s" +
            cache_text(planned);
    if (const auto* published = optpipe::best_published(planned))
        text += "; the best published schedule is " + published->method + "'s, " +
                optpipe::format_number(*published->objective) + unit;
    return text + '\n';
}

optpipe::baseline baseline_of(const optpipe::problem& p, const optpipe::builder_result& b,
                              optpipe::duration objective) {
    if (!b.objective) return {b.method, "", optpipe::reason_text(p, b.why)};
    optpipe::comparison_row row{b.method, optpipe::measures{}, "", b.seconds};
    row.result->objective = *b.objective;
    return optpipe::make_baseline(row, objective);
}

optpipe::outcome<optpipe::plan_result> search(const plan_options& options, const optpipe::problem& p) {
    const interruption interrupted{!options.quiet};
    auto how = options_from(options);
    how.stop = interrupted.token();
    if (!options.start.empty()) how.start = read_start(p, options.start);
    if (options.time_limit) how.time_limit = time_to_search(options, p, *options.time_limit);
    std::optional<progress_line> line;
    if (options.progress || (!options.quiet && ::isatty(STDERR_FILENO) == 1)) {
        line.emplace(unit_of(p));
        how.progress = [&line](const optpipe::search_step& step) { line->show(step); };
    }
    return optpipe::plan(p, how);
}

/// The search, and the best published schedule to compare with, which is built again.
optpipe::html_options page_of(const optpipe::problem& p, const optpipe::plan_result& planned) {
    optpipe::html_options page;
    page.seconds = planned.seconds;
    for (const auto& step : planned.history)
        page.progress.push_back({step.strategy, step.seconds,
                                 step.objective.is_unlimited() ? std::nullopt : std::optional{step.objective},
                                 step.bound});
    const auto* published = optpipe::best_published(planned);
    if (!published || published->method == planned.method) return page;
    const auto built = run_methods(p, [&](std::string_view name) { return name == published->method; });
    if (!built.empty() && built.front().result)
        page.beside = {published->method, optpipe::make_report(p, published->method, *built.front().result)};
    return page;
}

int plan_by_search(const plan_options& options, outputs& files, const optpipe::problem& p) {
    const auto planned = search(options, p);
    if (!planned) return refuse(options, p, optpipe::reason_text(p, planned.why()));
    const auto report = optpipe::report_of(p, *planned);
    write_files(files, p, report, files.has("--html") ? page_of(p, *planned) : optpipe::html_options{});
    const bool stopped = planned->why == optpipe::plan_end::stop_request;
    const int status = files.status(stopped ? stopped_by_signal : success);
    if (options.json) std::cout << json_of(p, report, *planned);
    if (options.json || options.quiet) return status;
    std::vector<optpipe::baseline> others;
    for (const auto& b : planned->builders)
        if (b.method != planned->method && (b.objective || is_made_for_it(b.why)))
            others.push_back(baseline_of(p, b, planned->objective));
    auto story = story_of(p, *planned);
    if (planned->robust)
        story += robust_text(*planned->robust, options_from(options).robust->percentile, unit_of(p));
    print(files.text(), p, report, story, others);
    return status;
}

#endif

} // namespace

int plan(const plan_options& options) {
    outputs files{{{"PROBLEM", options.problem}, {"--start", options.start}},
                  {{"--out", options.out},
                   {"--svg", options.svg},
                   {"--html", options.html},
                   {"--trace", options.trace}},
                  options.json};
    if (options.percentile && !options.noise)
        throw optpipe::error{"--percentile: there is none without --noise"};
    const auto p = read_problem(options.problem);
    if (options.forward_only) return plan_forward_only(options, files, p);
#if defined(OPTPIPE_HAS_MILP)
    if (options.method.empty() || options.method == "best") return plan_by_search(options, files, p);
#endif
    if (!options.start.empty()) throw optpipe::error{"--start: a method builds its schedule anew; leave out --method"};
    if (options.noise) throw optpipe::error{"--noise: only the search plans for it; leave out --method"};
    return plan_by_method(options, files, p);
}

} // namespace program
