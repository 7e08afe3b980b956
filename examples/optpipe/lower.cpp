#include "commands.hpp"
#include "files.hpp"
#include "schedule_file.hpp"
#include <optpipe/core/error.hpp>
#include <optpipe/core/outcome.hpp>
#include <optpipe/io/write_programs.hpp>
#include <optpipe/program/lower.hpp>

#include <string>
#include <utility>

namespace program {
namespace {

optpipe::message_lanes message_lanes_named(const std::string& name) {
    if (name == "per-direction") return optpipe::message_lanes::per_direction;
    return name == "single" ? optpipe::message_lanes::single : optpipe::message_lanes::separate;
}

} // namespace

int lower(const lower_options& options) {
    outputs files{{{"PROBLEM", options.problem.path}, {"PLAN", options.schedule}}, {{"--out", options.out}}};
    const auto given = read_problem(options.problem);
    auto document = read_schedule(options.schedule);
    const auto p = problem_for(given, document);
    const auto plan = valid_plan(p, std::move(document), options.schedule);
    const auto bytes_per_unit = options.bytes_per_unit.value_or(p.memory_unit == "B" ? 1.0 : 1e9);
    const auto programs = optpipe::lower(
        p, plan.schedule,
        {.bytes_per_unit = bytes_per_unit,
         .alignment = options.alignment,
         .message_bytes = options.message_bytes,
         .lanes = message_lanes_named(options.messages),
         .receives = options.receives == "early" ? optpipe::receive_issue::early : optpipe::receive_issue::when_due,
         .forward_only = plan.forward_only});
    if (!programs) throw optpipe::error{name_of(options.schedule) + ": " + optpipe::describe(programs.why())};
    files.write("--out", [&] { return optpipe::programs_to_json(p.name, *programs, bytes_per_unit); });
    return files.status(success);
}

} // namespace program
