#include "commands.hpp"
#include "files.hpp"
#include "partition_table.hpp"
#include "plan_json.hpp"
#include "plan_output.hpp"
#include "search.hpp"
#include <optpipe/io/json_layers.hpp>
#include <optpipe/io/text.hpp>
#include <optpipe/io/write_json.hpp>
#include <optpipe/pipeline/partition_problem.hpp>
#include <optpipe/planner/partition.hpp>

#include <cstddef>
#include <iostream>
#include <string>
#include <vector>

namespace program {
namespace {

/// For example "rank 0: layers 0-3, 28-31", with a line per rank.
std::string text_of_ranks(const optpipe::partition_plan& chosen) {
    optpipe::per_rank<std::string> held(chosen.pipeline.graph.ranks());
    for (const optpipe::stage s : chosen.pipeline.graph.all_stages()) {
        auto& text = held[chosen.pipeline.rank_of(s)];
        text += (text.empty() ? "" : ", ") + stage_layers_text(chosen, s);
    }
    std::string text;
    for (const optpipe::rank r : held.indices())
        text += "rank " + std::to_string(r.value()) + ": layers " + held[r] + '\n';
    return text;
}

/// "the best of 14 partitions in 9.8 s; no schedule of any partition is shorter than 812 ms; this one's plan:".
std::string tried_text(const optpipe::partition_plan& chosen) {
    return "the best of " + std::to_string(chosen.tried) + (chosen.tried == 1 ? " partition" : " partitions") + " in " +
           optpipe::format_number(chosen.seconds, 3) + " s; no schedule of any partition is shorter than " +
           optpipe::format_number(chosen.bound) + unit_of(chosen.pipeline) + "; this one's plan:\n";
}

} // namespace

int partition(const partition_options& options) {
    outputs files{{{"LAYERS", options.layers.path}},
                  {{"--out", options.out},
                   {"--plan", options.files.schedule},
                   {"--svg", options.files.svg},
                   {"--html", options.files.html},
                   {"--trace", options.files.trace}},
                  options.json};
    const auto given = read_layers(options.layers);
    const auto& first = given.pipelines.front();
    const interruption interrupted{!options.quiet};
    const auto compared = watched(options_from(options.search), options.search, unit_of(first), options.quiet,
                                  interrupted, [&](const optpipe::plan_options& how) {
                                      return options.table ? compare_layouts(given, options.layout, how)
                                                           : compared_layouts{{}, optpipe::plan_partition(given, how)};
                                  });
    const bool is_table_stopped = options.table && interrupted.is_requested();
    const auto& chosen = compared.chosen;
    if (!chosen) return refuse(options.json, options.layers.path, first, optpipe::reason_text(first, chosen.why()));
    const auto& p = chosen->pipeline;
    const auto& planned = chosen->planned;
    const auto report = optpipe::report_of(p, planned);
    files.write("--out", [&] { return optpipe::problem_to_json(p); });
    write_plan(files, "--plan", p, report, files.has("--html") ? page_of(p, planned) : optpipe::html_options{});
    const bool stopped = is_table_stopped || planned.why == optpipe::plan_end::stop_request;
    const int status = files.status(stopped ? stopped_by_signal : success);
    if (options.json) std::cout << json_of(report, *chosen);
    if (options.json || options.quiet) return status;
    if (options.table) {
        write_layouts(files.text(), given, compared);
        return status;
    }
    print_plan(files.text(), p, report, text_of_ranks(*chosen) + tried_text(*chosen) + story_of(p, planned),
               baselines_of(p, planned));
    return status;
}

} // namespace program
