#include "commands.hpp"
#include "files.hpp"
#include "interruption.hpp"
#include "methods.hpp"
#include "plan_json.hpp"
#include "plan_output.hpp"
#include "plan_table.hpp"
#include "schedule_file.hpp"
#include <optpipe/core/stop_check.hpp>
#include <optpipe/io/escape.hpp>
#include <optpipe/io/text.hpp>
#include <optpipe/schedule/bounds/structural_bounds.hpp>
#include <optpipe/schedule/construct/carry_over.hpp>
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
#include "plan_sizes.hpp"
#include "search.hpp"
#include <optpipe/planner/plan.hpp>
#endif

namespace program {
namespace {

bool uses_search(const plan_options& options) {
#if defined(OPTPIPE_HAS_MILP)
    return options.method.empty() || options.method == "best";
#else
    static_cast<void>(options);
    return false;
#endif
}

/// Refuses the options that only a search on several threads uses, or only a search that shows its progress.
void refuse_running_options(const plan_options& options, const std::string& why) {
    if (options.search.threads > 0) throw optpipe::error{"--threads: " + why};
    if (options.search.progress) throw optpipe::error{"--progress: " + why};
    refuse_search_options(options.search, options.deterministic, why);
}

/// Refuses options without effect.
void refuse_contradictions(const plan_options& options) {
    if (options.percentile && !options.noise) throw optpipe::error{"--percentile: there is none without --noise"};
    if (options.forward_only || uses_search(options)) return;
    if (!options.start.empty()) throw optpipe::error{"--start: a method builds its schedule anew; leave out --method"};
    if (options.noise) throw optpipe::error{"--noise: only the search plans for it; leave out --method"};
    refuse_running_options(options, "only the search uses it; leave out --method");
    const auto known = all_methods();
    const auto name = method_of(options.method).name;
    if (std::find(known.begin(), known.end(), name) != known.end()) refuse_unused_limits(options.search, {name});
}

const attempt* best_of(const std::vector<attempt>& attempts, const optpipe::problem& p) {
    const attempt* best = nullptr;
    for (const auto& a : attempts)
        if (a.result && (!best || optpipe::objective_of(p, *a.result) < optpipe::objective_of(p, *best->result)))
            best = &a;
    return best;
}

/// The constructive planner gives up only if nothing fits; other methods give their own reasons.
const attempt& most_telling(const std::vector<attempt>& attempts) {
    const auto found =
        std::find_if(attempts.begin(), attempts.end(), [](const attempt& a) { return is_constructive(a.method); });
    return found == attempts.end() ? attempts.back() : *found;
}

/// Plans without a search, and refuses the options of a search.
optpipe::outcome<optpipe::schedule_report> report_of_forwards(const plan_options& options,
                                                              const optpipe::problem& given) {
    const std::string why = "forwards alone are planned without a search; leave it out";
    const auto refuse_option = [&](bool is_there, const std::string& name) {
        if (is_there) throw optpipe::error{name + (": " + why)};
    };
    refuse_option(!options.method.empty(), "--method");
    refuse_option(options.search.time_limit.has_value(), "--time-limit");
    refuse_option(!options.start.empty(), "--start");
    refuse_option(options.noise.has_value(), "--noise");
    refuse_option(options.search.most_distinct_pairs.has_value(), "--most-distinct-pairs");
    refuse_option(options.search.seed != search_options{}.seed, "--seed");
    refuse_running_options(options, why);
    return optpipe::plan_forwards(given);
}

int plan_forward_only(const plan_options& options, outputs& files, const optpipe::problem& given) {
    const auto report = report_of_forwards(options, given);
    const auto p = optpipe::forward_problem(given);
    if (!report) return refuse(options.json, options.problem.path, p, optpipe::reason_text(p, report.why()));
    write_plan(files, "--out", p, *report, {});
    const int status = files.status(success);
    if (options.json) std::cout << json_of(p, *report, std::vector<attempt>{});
    if (!options.json && !options.quiet) print_plan(files.text(), p, *report, "", {});
    return status;
}

/// Runs the requested method, or all methods. The result is empty only if a signal stopped the methods.
std::vector<attempt> attempts_of(const plan_options& options, const optpipe::problem& p,
                                 const interruption& interrupted) {
    const auto method = method_of(options.method);
    const bool all = options.method.empty() || options.method == "best";
    auto attempts = run_methods(p, [&](std::string_view name) { return all || name == method.name; },
                                {method.settings, !all, options.search.time_limit, options.search.seed,
                                 options.search.most_distinct_pairs, interrupted.token()});
    if (attempts.empty() && !interrupted.is_requested())
        throw optpipe::error{"--method: there is no \"" + optpipe::printable(options.method) + "\"; there are best, " +
                             method_names()};
    return attempts;
}

std::string reason_of(const attempt& a, const optpipe::problem& p) {
    return optpipe::printable(a.method) + ": " + optpipe::reason_text(p, a.result.why());
}

planned_row row_by_method(const plan_options& options, const optpipe::problem& p, const interruption& interrupted) {
    const auto attempts = attempts_of(options, p, interrupted);
    planned_row row;
    const auto stops = interrupted.token();
    row.bound = optpipe::bounds_of(p, optpipe::stop_check{stops}).best();
    for (const auto& a : attempts)
        row.seconds += a.seconds;
    if (const auto* best = best_of(attempts, p)) {
        row.method = best->method;
        row.objective = optpipe::objective_of(p, *best->result);
        row.bound = without_rounding(row.bound, *row.objective);
    } else {
        row.reason = attempts.empty() ? "stopped" : reason_of(most_telling(attempts), p);
    }
    return row;
}

int plan_by_method(const plan_options& options, outputs& files, const optpipe::problem& p) {
    const interruption interrupted{!options.quiet};
    const auto attempts = attempts_of(options, p, interrupted);
    if (attempts.empty()) return stopped_by_signal;
    const auto* best = best_of(attempts, p);
    if (!best) return refuse(options.json, options.problem.path, p, reason_of(most_telling(attempts), p));
    const auto stops = interrupted.token();
    const auto bound = optpipe::bounds_of(p, optpipe::stop_check{stops}).best();
    const auto report = optpipe::make_report(p, best->method, *best->result, bound);
    write_plan(files, "--out", p, report, {.shows_idle = true});
    const int status = files.status(interrupted.is_requested() ? stopped_by_signal : success);
    if (options.json) std::cout << json_of(p, report, attempts);
    if (options.json || options.quiet) return status;
    std::vector<optpipe::baseline> others;
    for (const auto& a : attempts)
        if (&a != best && (a.result || is_made_for_it(a.result.why())))
            others.push_back(optpipe::make_baseline(row_of(p, a), report.measures.objective));
    print_plan(files.text(), p, report, "", others);
    return status;
}

#if defined(OPTPIPE_HAS_MILP)

/// The schedule in a file, carried over to this problem.
optpipe::schedule read_start(const optpipe::problem& p, const std::string& path) {
    auto timed = optpipe::carry_over(p, read_schedule_for(p, path).schedule);
    if (!timed) throw optpipe::error{name_of(path) + ": " + optpipe::reason_text(p, timed.why())};
    return *std::move(timed);
}

/// The part of the time limit left for the search, at least half. Writing output takes time as well, which matters for
/// hundreds of thousands of operations.
std::chrono::duration<double> time_to_search(const plan_options& options, const optpipe::problem& p, double limit) {
    // Seconds per operation, measured on one core for 400,000 stages × microbatches.
    constexpr double to_print = 2e-7;
    constexpr double to_json = 5e-7;
    constexpr double to_svg = 1e-7;
    constexpr double to_trace = 1.3e-6;
    const auto operations = static_cast<double>(5 * p.graph.cells());
    const double each = (options.quiet ? 0.0 : to_print) + (options.files.schedule.empty() ? 0.0 : to_json) +
                        (options.files.svg.empty() ? 0.0 : to_svg) + (options.files.trace.empty() ? 0.0 : to_trace);
    return std::chrono::duration<double>{std::max(0.5 * limit, limit - operations * each)};
}

/// "95th percentile with noise 1010 ms (mean 980 ms); without regard to noise 1025 ms (mean 981 ms), planned 950 ms".
std::string robust_text(const optpipe::robust_result& numbers, double percentile, const std::string& unit) {
    const auto text = [&](optpipe::duration t) { return optpipe::format_number(t) + unit; };
    return "with noise: percentile " + optpipe::format_number(percentile, 4) + " is " + text(numbers.percentile) +
           ", mean " + text(numbers.mean) + "; of the plan for no noise " + text(numbers.nominal_percentile) +
           ", mean " + text(numbers.nominal_mean) + ", planned " + text(numbers.nominal_objective) + '\n';
}

optpipe::outcome<optpipe::plan_result> search(const plan_options& options, const optpipe::problem& p,
                                              const interruption& interrupted) {
    auto how = options_from(options.search);
    how.deterministic = options.deterministic;
    if (options.noise) {
        how.robust.emplace();
        how.robust->noise.spread = *options.noise;
        how.robust->percentile = options.percentile.value_or(how.robust->percentile);
    }
    if (!options.start.empty()) how.start = read_start(p, options.start);
    if (const auto limit = options.search.time_limit) how.time_limit = time_to_search(options, p, *limit);
    return watched(how, options.search, unit_of(p), options.quiet, interrupted,
                   [&](const optpipe::plan_options& watched_options) { return optpipe::plan(p, watched_options); });
}

planned_row row_by_search(const plan_options& options, const optpipe::problem& p, const interruption& interrupted) {
    const auto start = std::chrono::steady_clock::now();
    const auto planned = search(options, p, interrupted);
    planned_row row;
    if (planned) {
        row = {planned->method, planned->objective, planned->bound, planned->seconds};
    } else {
        row.reason = optpipe::reason_text(p, planned.why());
        row.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    }
    return row;
}

int plan_by_search(const plan_options& options, outputs& files, const optpipe::problem& p) {
    const interruption interrupted{!options.quiet};
    const auto planned = search(options, p, interrupted);
    if (!planned) return refuse(options.json, options.problem.path, p, optpipe::reason_text(p, planned.why()));
    const auto report = optpipe::report_of(p, *planned);
    write_plan(files, "--out", p, report, files.has("--html") ? page_of(p, *planned) : optpipe::html_options{});
    const bool stopped = planned->why == optpipe::plan_end::stop_request;
    const int status = files.status(stopped ? stopped_by_signal : success);
    if (options.json) std::cout << json_of(p, report, *planned);
    if (options.json || options.quiet) return status;
    auto story = story_of(p, *planned);
    if (planned->robust)
        story += robust_text(*planned->robust, options.percentile.value_or(optpipe::robust_options{}.percentile),
                             unit_of(p));
    print_plan(files.text(), p, report, story, baselines_of(p, *planned));
    return status;
}

#endif

} // namespace

planned_row plan_row(const plan_options& options, const optpipe::problem& p, const interruption& interrupted) {
    if (options.forward_only) {
        const auto report = report_of_forwards(options, p);
        if (report) return {report->method, report->measures.objective, report->bound.value_or(optpipe::duration{})};
        planned_row refused;
        refused.reason = optpipe::reason_text(p, report.why());
        return refused;
    }
#if defined(OPTPIPE_HAS_MILP)
    if (uses_search(options)) return row_by_search(options, p, interrupted);
#endif
    return row_by_method(options, p, interrupted);
}

int plan(const plan_options& options) {
    refuse_contradictions(options);
#if defined(OPTPIPE_HAS_MILP)
    if (!options.costs_at.empty()) return plan_sizes(options);
#endif
    if (options.problems.size() > 1 || !options.csv.empty()) return plan_table(options);
    outputs files{{{"PROBLEM", options.problem.path}, {"--start", options.start}},
                  {{"--out", options.files.schedule},
                   {"--svg", options.files.svg},
                   {"--html", options.files.html},
                   {"--trace", options.files.trace}},
                  options.json};
    const auto p = read_problem(options.problem);
    if (options.forward_only) return plan_forward_only(options, files, p);
#if defined(OPTPIPE_HAS_MILP)
    if (uses_search(options)) return plan_by_search(options, files, p);
#endif
    return plan_by_method(options, files, p);
}

} // namespace program
