#pragma once

#include "optpipe/core/compiled.hpp"
#include "optpipe/io/schedule_document.hpp"
#include "optpipe/pipeline/problem.hpp"
#include "optpipe/schedule/schedule.hpp"

#include <cstddef>
#include <string>
#include <string_view>

namespace optpipe {
namespace detail {

inline constexpr std::size_t most_schedule_bytes = std::size_t{1} << 30U;

} // namespace detail

/// Reads the formats `optpipe.schedule/1` to /3. Format /2 has no pairs, and format /1 has neither pairs nor storage
/// options. Throws `input_error` with all violations of the format. An operation with an unreadable spelling doesn't
/// throw, but is listed in `unreadable`.
[[nodiscard]] schedule_document parse_schedule(std::string_view text, const std::string& source_name);

/// Reads a file with `parse_schedule`. Throws `file_error` if the file can't be read or is larger than 1 GiB.
[[nodiscard]] schedule_document read_schedule(const std::string& path);

/// Reads a file with `read_schedule`, as a valid schedule of `p`. Throws `input_error` with all violations, including
/// `document_violations`.
[[nodiscard]] schedule read_plan(const problem& p, const std::string& path);

} // namespace optpipe

#if OPTPIPE_DEFINES(io)
#include "optpipe/core/error.hpp"
#include "optpipe/io/file.hpp"
#include "optpipe/io/json_fields.hpp"
#include "optpipe/io/json_tree.hpp"
#include "optpipe/io/schedule_document.hpp"
#include "optpipe/schedule/operation.hpp"
#include "optpipe/schedule/pair.hpp"

#include <cmath>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace optpipe {
namespace detail {

/// Reads the operations one by one. A tree of all operations would take many times the memory of the file.
class operation_reader {
public:
    operation_reader(schedule_document& document, violation_list& found) : document_{&document}, found_{&found} {}

    void element(const json& value) {
        const auto place = element_of("operations", position_++);
        if (!value.is_object()) return refuse_type(*found_, place, "an object", value);
        const fields at{value, place + ".", *found_};
        at.refuse_unknown({"op", "start", "end", "storage"});
        const auto* spelling = at.required("op");
        const duration start{time(at, "start")};
        const duration end{time(at, "end")};
        if (!spelling) return;
        if (!spelling->is_string()) return refuse_type(*found_, at.place("op"), "a string", *spelling);
        const auto option = at.string_or("storage", "");
        if (const auto pair = parse_pair(spelling->get_ref<const std::string&>())) {
            if (at.find("storage")) document_->storage.emplace_back(pair->forward, option);
            document_->operations.push_back({pair->forward, start, end});
            document_->operations.push_back({pair->backward, start, end});
            return;
        }
        const auto op = parse_operation(spelling->get_ref<const std::string&>());
        if (at.find("storage") && op && op->kind != operation_kind::forward)
            found_->add(at.place("storage"), "belongs to forwards alone");
        if (at.find("storage") && op) document_->storage.emplace_back(*op, option);
        if (op)
            document_->operations.push_back({*op, start, end});
        else
            unreadable_.add(at.place("op"), shown(*spelling) + " is no operation, as 2F0 is");
    }

    [[nodiscard]] const std::vector<violation>& unreadable() const { return unreadable_.found(); }

private:
    /// Limit of times, far above the times of any problem. Larger times would lead to infinite coordinates in figures.
    static constexpr double most_time = 1e100;

    double time(const fields& at, const char* name) {
        const auto read = at.number(name, 0.0);
        if (!(std::abs(read) <= most_time)) found_->add(at.place(name), "must be between -1e100 and 1e100");
        return read;
    }

    schedule_document* document_;
    violation_list* found_;
    violation_list unreadable_;
    std::size_t position_ = 0;
};

inline std::optional<duration> read_duration(const fields& top, const char* name) {
    const auto number = top.number_if_any(name);
    return number ? std::optional{duration{*number}} : std::nullopt;
}

inline std::optional<std::vector<memory_size>> read_peaks(const fields& top, violation_list& found) {
    const auto* value = top.find("peak_memory");
    if (!value || value->is_null()) return std::nullopt;
    if (!value->is_array()) return refuse_type(found, "peak_memory", "a list", *value), std::nullopt;
    std::vector<memory_size> peaks;
    for (std::size_t r = 0; r < value->size(); ++r)
        peaks.emplace_back(read_number((*value)[r], element_of("peak_memory", r), found).value_or(0.0));
    return peaks;
}

inline void read_claims(const json& root, schedule_document& document, violation_list& found) {
    if (!root.is_object()) return refuse_type(found, "", "an object", root);
    const fields top{root, "", found};
    const auto version = format_version(top, "optpipe.schedule/", 3, found);
    if (version == 0) return;
    top.refuse_unknown({"format", "problem", "method", "forward_only", "objective", "bound", "gap", "bubble_rate",
                        "peak_memory", "operations"});
    if (version == 1 && !document.storage.empty())
        found.add("operations", "have storage options, which belong to optpipe.schedule/2");
    if (version < 3 && has_pairs(document.operations))
        found.add("operations", "have pairs, which belong to optpipe.schedule/3");
    document.forward_only = top.bool_or("forward_only", false);
    if (version == 1 && top.find("forward_only")) found.add("forward_only", "belongs to optpipe.schedule/2");
    document.problem_name = top.string_or("problem", "");
    document.method = top.string_or("method", "");
    document.objective = read_duration(top, "objective");
    document.bound = read_duration(top, "bound");
    document.gap = top.number_if_any("gap");
    document.bubble_rate = top.number_if_any("bubble_rate");
    document.peak_memory = read_peaks(top, found);
    static_cast<void>(top.list("operations"));
}

} // namespace detail

OPTPIPE_INLINE schedule_document parse_schedule(std::string_view text, const std::string& source_name) {
    schedule_document document;
    detail::violation_list of_operations;
    detail::operation_reader reader{document, of_operations};
    const detail::streamed_list operations{"operations", [&](const detail::json& value) { reader.element(value); }};
    const auto root = detail::parse_json(text, source_name, &operations);
    detail::violation_list found;
    detail::read_claims(root, document, found);
    for (const auto& v : of_operations.found())
        found.add(v.place, v.reason);
    if (!found.empty()) throw input_error{source_name, found.found()};
    document.unreadable = reader.unreadable();
    return document;
}

OPTPIPE_INLINE schedule_document read_schedule(const std::string& path) {
    return parse_schedule(read_file(path, detail::most_schedule_bytes), printable(path, 400));
}

OPTPIPE_INLINE schedule read_plan(const problem& p, const std::string& path) {
    const auto document = read_schedule(path);
    if (auto wrong = document_violations(p, document); !wrong.empty())
        throw input_error{printable(path, 400), std::move(wrong)};
    return to_schedule(problem_for(p, document), document);
}

} // namespace optpipe
#endif
