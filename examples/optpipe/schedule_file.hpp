#pragma once

#include "files.hpp"
#include <optpipe/core/error.hpp>
#include <optpipe/io/escape.hpp>
#include <optpipe/io/json.hpp>
#include <optpipe/io/schedule_document.hpp>
#include <optpipe/schedule/construct/forward_only.hpp>
#include <optpipe/schedule/operation.hpp>
#include <optpipe/schedule/time/evaluate.hpp>
#include <optpipe/schedule/time/validate.hpp>

#include <string>
#include <utility>
#include <vector>

namespace program {

/// A schedule file that was checked against its problem.
struct schedule_file {
    optpipe::schedule_document document;
    optpipe::schedule schedule;
};

/// Throws `input_error` if the file has operations or storage options that the problem lacks. The schedule may break
/// other rules of the problem.
inline schedule_file check_schedule_for(const optpipe::problem& p, optpipe::schedule_document document,
                                        const std::string& path) {
    schedule_file file{std::move(document), {}};
    file.schedule = optpipe::to_schedule(p, file.document);
    auto violations = file.document.unreadable;
    const optpipe::operation_numbering<optpipe::any_graph> possible{p.graph};
    for (const auto& timed : file.schedule.operations)
        if (!possible.contains(timed.op))
            violations.push_back({"operations", to_string(timed.op) + ": no such stage or microbatch"});
    if (violations.empty()) violations = optpipe::storage_violations(p, file.document);
    if (!violations.empty()) throw optpipe::input_error{name_of(path), std::move(violations)};
    return file;
}

/// See `check_schedule_for`; for commands that don't support forwards alone.
inline schedule_file check_training_schedule(const optpipe::problem& p, optpipe::schedule_document document,
                                             const std::string& path) {
    if (document.forward_only)
        throw optpipe::input_error{name_of(path), {{"forward_only", "this takes schedules of training steps alone"}}};
    return check_schedule_for(p, std::move(document), path);
}

/// Reads a schedule of a training step.
inline schedule_file read_schedule_for(const optpipe::problem& p, const std::string& path) {
    return check_training_schedule(p, read_schedule(path), path);
}

/// Violations in a schedule of the kind that its file declares.
inline std::vector<optpipe::violation> violations_in(const optpipe::problem& p, const schedule_file& file) {
    return file.document.forward_only ? optpipe::validate_forward_only(p, file.schedule)
                                      : optpipe::validate(p, file.schedule);
}

/// The file. Throws `input_error` if its schedule breaks a rule of `p`. Contract: `p` matches the file (`problem_for`).
inline schedule_file require_valid(const optpipe::problem& p, schedule_file file, const std::string& path) {
    if (auto broken = violations_in(p, file); !broken.empty())
        throw optpipe::input_error{name_of(path), std::move(broken)};
    return file;
}

/// The report of a schedule that breaks no rule of `p`. Throws, and expects, what `require_valid` does.
inline optpipe::schedule_report valid_plan(const optpipe::problem& p, optpipe::schedule_document document,
                                           const std::string& path) {
    const auto file = require_valid(p, check_schedule_for(p, std::move(document), path), path);
    auto report = optpipe::make_report(p, file.document.method, file.schedule);
    report.forward_only = file.document.forward_only;
    return report;
}

} // namespace program
