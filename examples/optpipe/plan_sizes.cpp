#include "plan_sizes.hpp"

#include "files.hpp"
#include "plan_json.hpp"
#include "plan_output.hpp"
#include "plan_table.hpp"
#include "search.hpp"
#include <optpipe/core/error.hpp>
#include <optpipe/core/format.hpp>
#include <optpipe/io/escape.hpp>
#include <optpipe/io/limits.hpp>
#include <optpipe/io/text.hpp>
#include <optpipe/io/text_table.hpp>
#include <optpipe/io/timeline.hpp>
#include <optpipe/io/write_json.hpp>
#include <optpipe/pipeline/costs_by_size.hpp>
#include <optpipe/planner/alternatives.hpp>

#include <cstddef>
#include <iostream>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

namespace program {
namespace {

/// Refuses options that only apply to a plan of a single problem.
void refuse_others(const plan_options& options) {
    const std::pair<const char*, bool> given[]{
        {"--method", !options.method.empty()},  {"--start", !options.start.empty()},
        {"--noise", options.noise.has_value()}, {"--forward-only", options.forward_only},
        {"--csv", !options.csv.empty()},        {"several problems", options.problems.size() > 1},
    };
    for (const auto& [name, is_given] : given)
        if (is_given) throw optpipe::error{std::string{name} + ": not with --costs-at"};
}

/// The problems with these numbers of microbatches.
std::vector<optpipe::problem> problems_of(const plan_options& options) {
    std::vector<optpipe::problem> measured{read_problem(options.problem)};
    for (const auto& path : options.costs_at)
        measured.push_back(read_problem({path, options.problem.changes}));
    constexpr auto most = optpipe::detail::most_stage_microbatches;
    const auto stages = measured.front().graph.stages();
    const optpipe::costs_by_size costs{std::move(measured)};
    std::vector<optpipe::problem> problems;
    for (const auto number : options.microbatches.empty() ? costs.measured_numbers() : options.microbatches) {
        if (number > most / stages)
            throw optpipe::error{"--microbatches: " + std::to_string(number) + " times " + std::to_string(stages) +
                                 " stages must be at most " + std::to_string(most)};
        problems.push_back(costs.at(number));
    }
    return problems;
}

std::vector<optpipe::table_row> rows_of(const std::vector<optpipe::problem>& problems,
                                        const optpipe::alternatives_plan& found) {
    const auto unit = optpipe::detail::in_brackets(optpipe::printable(problems.front().time_unit, 20));
    std::vector<optpipe::table_row> lines{{"microbatches", "step" + unit, "bound" + unit, "chosen"}};
    for (std::size_t i = 0; i < problems.size(); ++i) {
        const auto& each = found.all[i];
        const auto number = std::to_string(problems[i].graph.microbatches());
        if (each.refused)
            lines.push_back({number, optpipe::reason_text(problems[i], *each.refused)});
        else
            lines.push_back({number, each.planned ? optpipe::format_number(each.planned->objective) : "dropped",
                             optpipe::format_number(each.bound), i == found.chosen ? "yes" : ""});
    }
    return lines;
}

} // namespace

int plan_sizes(const plan_options& options) {
    refuse_others(options);
    std::vector<named_file> inputs{{"PROBLEM", options.problem.path}};
    for (const auto& path : options.costs_at)
        inputs.push_back({"--costs-at", path});
    outputs files{inputs,
                  {{"--out", options.files.schedule},
                   {"--out-problem", options.out_problem},
                   {"--svg", options.files.svg},
                   {"--html", options.files.html},
                   {"--trace", options.files.trace}},
                  options.json};
    const auto problems = problems_of(options);
    auto given = options_from(options.search);
    given.deterministic = options.deterministic;
    const interruption interrupted{!options.quiet};
    const auto found =
        watched(given, options.search, unit_of(problems.front()), options.quiet, interrupted,
                [&](const optpipe::plan_options& how) { return optpipe::plan_alternatives(problems, how); });
    const bool stopped = interrupted.is_requested();
    if (!found)
        return refuse(options.json, options.problem.path, problems.front(),
                      optpipe::reason_text(problems.front(), found.why()));
    const auto& p = problems[found->chosen];
    const auto& planned = found->best();
    const auto report = optpipe::report_of(p, planned);
    files.write("--out-problem", [&] { return optpipe::problem_to_json(p); });
    write_plan(files, "--out", p, report, files.has("--html") ? page_of(p, planned) : optpipe::html_options{});
    const int status = files.status(stopped ? stopped_by_signal : success);
    if (options.json) std::cout << json_of(problems, report, *found);
    if (options.json || options.quiet) return status;
    optpipe::write_table(files.text(), rows_of(problems, *found));
    auto timed = planned;
    timed.seconds = found->seconds;
    print_plan(files.text(), p, report, story_of(p, timed), baselines_of(p, planned));
    return status;
}

} // namespace program
