#pragma once

#include "optpipe/core/compiled.hpp"
#include "optpipe/core/error.hpp"
#include "optpipe/core/quantity.hpp"
#include "optpipe/core/tolerance.hpp"
#include "optpipe/pipeline/problem.hpp"
#include "optpipe/schedule/operation.hpp"
#include "optpipe/schedule/schedule.hpp"
#include "optpipe/schedule/time/measure.hpp"

#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace optpipe {

/// A schedule as read from a file (io/README.md), not yet checked against a problem. The operations may be impossible,
/// and the stated measures may be wrong.
struct schedule_document {
    std::string problem_name;
    std::string method;
    /// Whether the file declares a schedule of forwards only.
    bool forward_only = false;
    std::vector<timed_operation> operations;
    /// Forwards that name a storage option, with the option's name.
    std::vector<std::pair<operation, std::string>> storage;
    /// Entries of the file's list `operations` that can't be read. The member `operations` doesn't contain unreadable
    /// entries.
    std::vector<violation> unreadable;
    std::optional<duration> objective;
    std::optional<duration> bound;
    std::optional<double> gap;
    std::optional<double> bubble_rate;
    std::optional<std::vector<memory_size>> peak_memory;
};

/// Returns `p`, without stashes if the document has forwards only.
[[nodiscard]] problem problem_for(problem p, const schedule_document& document);

/// The operations of a document as a schedule of this problem. Unknown operations stay in the schedule, and `validate`
/// reports them.
[[nodiscard]] schedule to_schedule(const problem& p, const schedule_document& document);

/// The document's storage options that the problem doesn't have.
[[nodiscard]] std::vector<violation> storage_violations(const problem& p, const schedule_document& document);

/// The largest accepted differences between the measures stated in a file and the measures of its operations.
struct claim_slacks {
    duration time{};
    memory_size memory{};
    double rate = 0.0;
};

[[nodiscard]] claim_slacks claim_slacks_of(const problem& p, const schedule& s, tolerance t = {});

/// All faults of a document: unreadable entries, unknown storage options and operations, violated rules, and wrong
/// measures. A document without violations can be relied on.
[[nodiscard]] std::vector<violation> document_violations(const problem& p, const schedule_document& document);

/// One violation for each measure that differs from `m` by more than the slack.
[[nodiscard]] std::vector<violation> claims_violations(const schedule_document& document, const measures& m,
                                                       const claim_slacks& slacks);

} // namespace optpipe

#if OPTPIPE_DEFINES(io)
#include "optpipe/core/format.hpp"
#include "optpipe/io/escape.hpp"
#include "optpipe/schedule/construct/forward_only.hpp"
#include "optpipe/schedule/construct/uniform_storage.hpp"
#include "optpipe/schedule/rules/cells.hpp"
#include "optpipe/schedule/time/validate.hpp"

#include <cmath>
#include <limits>
#include <string_view>

namespace optpipe {
namespace detail {


inline bool has_cell(const problem& p, const operation& op) {
    return op.stage.position() < p.graph.stages() && op.microbatch.position() < p.graph.microbatches();
}

/// The name of the storage option of each stage and microbatch. The default is `offload` for a stash with an OFFLOAD,
/// and `keep` otherwise.
inline std::vector<std::string_view> storage_names(const problem& p, const schedule_document& document) {
    const cell_numbering cell{p.graph};
    std::vector<std::string_view> names(cell.size(), "keep");
    for (const auto& timed : document.operations)
        if (timed.op.kind == operation_kind::offload && has_cell(p, timed.op)) names[cell(timed.op)] = "offload";
    for (const auto& [op, name] : document.storage)
        if (has_cell(p, op)) names[cell(op)] = name;
    return names;
}

} // namespace detail

OPTPIPE_INLINE problem problem_for(problem p, const schedule_document& document) {
    return document.forward_only ? forward_problem(std::move(p)) : p;
}

OPTPIPE_INLINE schedule to_schedule(const problem& p, const schedule_document& document) {
    schedule result{p.graph, {}};
    result.operations.assign(document.operations.begin(), document.operations.end());
    const auto names = detail::storage_names(p, document);
    const cell_numbering cell{p.graph};
    for (auto& timed : result.operations)
        if (detail::has_cell(p, timed.op))
            timed.op.storage = static_cast<storage_index>(find_storage_option(p, timed.op.stage, names[cell(timed.op)])
                                                              .value_or(std::numeric_limits<storage_index>::max()));
    return result;
}

OPTPIPE_INLINE std::vector<violation> storage_violations(const problem& p, const schedule_document& document) {
    std::vector<violation> found;
    const auto names = detail::storage_names(p, document);
    const cell_numbering cell{p.graph};
    std::vector<unsigned char> is_named(cell.size(), 0);
    std::vector<const operation*> first(cell.size(), nullptr);
    for (const auto& timed : document.operations) {
        if (!detail::has_cell(p, timed.op)) continue;
        auto& one = first[cell(timed.op)];
        if (!one || timed.op.kind == operation_kind::forward) one = &timed.op;
    }
    for (const auto& [op, name] : document.storage)
        if (detail::has_cell(p, op)) is_named[cell(op)] = 1;
    for (std::size_t c = 0; c < cell.size(); ++c) {
        if (!first[c]) continue;
        const auto& op = *first[c];
        const std::string name{names[c]};
        const auto known = find_storage_option(p, op.stage, name);
        if (!known && op.kind != operation_kind::forward)
            found.push_back({to_string(forward(op.stage, op.microbatch)), "is missing; it names the storage option"});
        else if (!known)
            found.push_back({to_string(op), std::string{is_named[c] ? "" : "names no storage option, and "} +
                                                "its stage has no storage option \"" + printable(name, 60) + "\""});
    }
    return found;
}

OPTPIPE_INLINE claim_slacks claim_slacks_of(const problem& p, const schedule& s, tolerance t) {
    return {time_slack(p, s, t), t.at(p.memory_scale()), t.at(1.0)};
}
namespace detail {

/// Whether the two values differ by at most `slack`. False if a value is NaN.
inline bool near(double a, double b, double slack) { return std::abs(a - b) <= slack; }

inline void check_claim(std::vector<violation>& found, std::string place, double claimed, double true_value,
                        double slack) {
    if (near(claimed, true_value, slack)) return;
    constexpr int digits = 10;
    found.push_back({std::move(place), "the file says " + format_number(claimed, digits) + ", its operations give " +
                                           format_number(true_value, digits)});
}

inline void check_bound(std::vector<violation>& found, const schedule_document& document, const measures& m,
                        const claim_slacks& slacks) {
    if (!document.bound) {
        if (document.gap) found.push_back({"gap", "there is no bound that it could be the distance to"});
        return;
    }
    if (!(*document.bound <= m.objective + slacks.time))
        found.push_back({"bound", format_number(*document.bound, 10) + " is above the objective " +
                                      format_number(m.objective, 10)});
    if (document.gap && m.objective > duration{})
        check_claim(found, "gap", *document.gap, (m.objective - *document.bound) / m.objective,
                    slacks.rate + slacks.time / m.objective);
}

inline void check_peaks(std::vector<violation>& found, const std::vector<memory_size>& claimed, const measures& m,
                        memory_size slack) {
    if (claimed.size() != m.peak_memory.size()) {
        found.push_back({"peak_memory", "has " + std::to_string(claimed.size()) + " entries, there are " +
                                            std::to_string(m.peak_memory.size()) + " ranks"});
        return;
    }
    for (const rank r : m.peak_memory.indices())
        check_claim(found, "peak_memory[" + std::to_string(r.value()) + "]", claimed[r.position()].value(),
                    m.peak_memory[r].value(), slack.value());
}

} // namespace detail

OPTPIPE_INLINE std::vector<violation> claims_violations(const schedule_document& document, const measures& m,
                                                        const claim_slacks& slacks) {
    std::vector<violation> found;
    if (document.objective)
        detail::check_claim(found, "objective", document.objective->value(), m.objective.value(), slacks.time.value());
    if (document.bubble_rate)
        detail::check_claim(found, "bubble_rate", *document.bubble_rate, m.bubble_rate, slacks.rate);
    if (document.peak_memory) detail::check_peaks(found, *document.peak_memory, m, slacks.memory);
    detail::check_bound(found, document, m, slacks);
    return found;
}

OPTPIPE_INLINE std::vector<violation> document_violations(const problem& p, const schedule_document& document) {
    const auto taken = problem_for(p, document);
    auto found = document.unreadable;
    for (auto& v : storage_violations(taken, document))
        found.push_back(std::move(v));
    if (found.size() > document.unreadable.size()) return found; // all further checks need valid storage options
    const auto timed = to_schedule(taken, document);
    for (auto& v : document.forward_only ? validate_forward_only(taken, timed) : validate(taken, timed))
        found.push_back(std::move(v));
    if (!found.empty()) return found; // the stated measures can only be checked for valid operations
    return claims_violations(document, measure(taken, timed), claim_slacks_of(taken, timed));
}

} // namespace optpipe
#endif
