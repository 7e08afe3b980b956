#pragma once

#include "files.hpp"
#include <optpipe/core/outcome.hpp>
#include <optpipe/io/html.hpp>
#include <optpipe/io/text.hpp>
#include <optpipe/pipeline/problem.hpp>
#include <optpipe/schedule/time/report.hpp>

#include <iosfwd>
#include <string>
#include <vector>

/// What becomes of a plan: files, and text.
namespace program {

/// `schedule`: the option that says where the schedule goes.
void write_plan(outputs& files, const std::string& schedule, const optpipe::problem& p,
                const optpipe::schedule_report& report, const optpipe::html_options& page);
/// `story`: lines on how it was found.
void print_plan(std::ostream& out, const optpipe::problem& p, const optpipe::schedule_report& report,
                const std::string& story, const std::vector<optpipe::baseline>& others);
/// There is no schedule of the problem, or the layers, in the file `input`: says so, and returns the exit status.
int refuse(bool json, const std::string& input, const optpipe::problem& p, const std::string& reason);
/// With a space before it; empty if it has none.
std::string unit_of(const optpipe::problem& p);
/// What isn't, `compare` lists.
bool is_made_for_it(const optpipe::refusal& why);

} // namespace program
