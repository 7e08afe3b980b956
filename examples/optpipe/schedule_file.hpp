#pragma once

#include "files.hpp"
#include <optpipe/core/error.hpp>
#include <optpipe/io/escape.hpp>
#include <optpipe/io/json.hpp>
#include <optpipe/io/schedule_document.hpp>
#include <optpipe/schedule/operation.hpp>

#include <string>
#include <utility>

namespace program {

/// A schedule file that was held against its problem.
struct schedule_file {
    optpipe::schedule_document document;
    optpipe::schedule schedule;
};

/// Throws `input_error` if the file has operations or storage options that the problem doesn't have. It may break rules
/// of the problem.
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
    if (violations.empty())
        for (const auto& timed : file.schedule.operations)
            if (timed.op.kind == optpipe::operation_kind::forward && p.has_storage_options() &&
                timed.op.storage >= p.storage_options(timed.op.stage))
                violations.push_back({"operations", to_string(timed.op) + ": names no storage option of its stage"});
    if (!violations.empty()) throw optpipe::input_error{name_of(path), std::move(violations)};
    return file;
}

inline schedule_file read_schedule_for(const optpipe::problem& p, const std::string& path) {
    return check_schedule_for(p, read_schedule(path), path);
}

} // namespace program
