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

/// The output of a plan: files and text.
namespace program {

/// `schedule` is the option for the output file of the schedule.
void write_plan(outputs& files, const std::string& schedule, const optpipe::problem& p,
                const optpipe::schedule_report& report, const optpipe::html_options& page);
/// `story` has lines on how the plan was found.
void print_plan(std::ostream& out, const optpipe::problem& p, const optpipe::schedule_report& report,
                const std::string& story, const std::vector<optpipe::baseline>& others);
/// Reports that the problem or the layers in the file `input` have no schedule, and returns the exit status.
int refuse(bool json, const std::string& input, const optpipe::problem& p, const std::string& reason);
/// The unit of time, with a space before it; empty if there is none.
std::string unit_of(const optpipe::problem& p);
/// Whether the method handles this kind of problem; `compare` lists the others.
bool is_made_for_it(const optpipe::refusal& why);

} // namespace program
