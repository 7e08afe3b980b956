#pragma once

#include "commands.hpp"
#include "interruption.hpp"
#include "plan_output.hpp"
#include "progress.hpp"
#include <optpipe/io/html.hpp>
#include <optpipe/io/text.hpp>
#include <optpipe/pipeline/problem.hpp>
#include <optpipe/planner/plan_options.hpp>
#include <optpipe/planner/plan_result.hpp>

#include <unistd.h>

#include <optional>
#include <string>
#include <vector>

/// The planner, as used by commands.
namespace program {

optpipe::plan_options options_from(const search_options& given);

/// Runs `search` with the options. It ends once `interrupted`, and its progress is shown.
template <class Search>
auto watched(optpipe::plan_options how, const search_options& given, const std::string& unit, bool quiet,
             const interruption& interrupted, const Search& search) {
    how.stop = interrupted.token();
    std::optional<progress_line> line;
    if (given.progress || (!quiet && ::isatty(STDERR_FILENO) == 1)) {
        line.emplace(unit);
        how.progress = [&line](const optpipe::search_step& step) { line->show(step); };
    }
    return search(how);
}

/// One line per strategy on its results, and the reason why the search ended.
std::string story_of(const optpipe::problem& p, const optpipe::plan_result& planned);
/// The other builders, each with its best storage option, for the verdict.
std::vector<optpipe::baseline> baselines_of(const optpipe::problem& p, const optpipe::plan_result& planned);
/// A page with the search and, for comparison, the best published schedule, which is built again.
optpipe::html_options page_of(const optpipe::problem& p, const optpipe::plan_result& planned);

} // namespace program
