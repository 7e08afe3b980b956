#include "sweep_rows.hpp"

#include "changes.hpp"
#include "files.hpp"
#include "plan_json.hpp"
#include "plan_table.hpp"
#include <optpipe/core/error.hpp>
#include <optpipe/core/format.hpp>
#include <optpipe/io/escape.hpp>
#include <optpipe/io/json_fields.hpp>
#include <optpipe/io/json_problem.hpp>
#include <optpipe/io/json_tree.hpp>
#include <optpipe/io/text_table.hpp>

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cstddef>
#include <ostream>
#include <utility>

namespace program {
namespace {

using optpipe::detail::json;

/// The field of a setting that isn't there without a limit, as in files of earlier versions.
constexpr const char* most_pairs = "most_distinct_pairs";

nlohmann::ordered_json to_json(const sweep_row& row) {
    nlohmann::ordered_json entry{{"value", row.value}, {"by", row.by}};
    if (row.objective) {
        entry["method"] = row.method;
        entry["objective"] = *row.objective;
        entry["bound"] = row.bound;
    } else {
        entry["reason"] = row.reason;
    }
    entry["seconds"] = row.seconds;
    return entry;
}

std::string required_text(const optpipe::detail::fields& at, const char* name) {
    return at.required(name) ? at.string_or(name, "") : "";
}

double positive_or_zero(const optpipe::detail::fields& at, const char* name, optpipe::detail::violation_list& found) {
    const double value = at.number(name, 0.0);
    if (value < 0.0) found.add(at.place(name), "must not be negative");
    return value;
}

sweep_row read_row(const optpipe::detail::fields& at, optpipe::detail::violation_list& found) {
    sweep_row row{required_text(at, "value"), required_text(at, "by")};
    row.seconds = positive_or_zero(at, "seconds", found);
    if (at.find("reason")) {
        at.refuse_unknown({"value", "by", "reason", "seconds"});
        row.reason = required_text(at, "reason");
        return row;
    }
    at.refuse_unknown({"value", "by", "method", "objective", "bound", "seconds"});
    row.method = required_text(at, "method");
    row.bound = positive_or_zero(at, "bound", found);
    row.objective = at.number("objective", 1.0);
    if (!(*row.objective > 0.0)) found.add(at.place("objective"), "must be more than 0");
    return row;
}

/// Reports every field of the setting that is missing or different in the document.
void refuse_other_setting(const optpipe::detail::fields& top, const nlohmann::ordered_json& setting,
                          optpipe::detail::violation_list& found) {
    constexpr const char* reason = "is of another sweep; name another file, or remove this one";
    for (const auto& [name, wanted] : setting.items()) {
        const auto* value = name == most_pairs ? top.find(most_pairs) : top.required(name.c_str());
        const bool is_equal = value && nlohmann::ordered_json(*value) == nlohmann::ordered_json(json(wanted));
        if (!is_equal && (value || name == most_pairs)) found.add(name, reason);
    }
    if (!setting.contains(most_pairs) && top.find(most_pairs)) found.add(most_pairs, reason);
}

/// A line for each value, with all that is known of the one way to plan.
void print_values(std::ostream& out, const std::string& field, const std::vector<sweep_row>& rows) {
    constexpr int digits = 3;
    std::vector<optpipe::table_row> lines{{field, "objective", "bound", "gap", "method", "seconds"}};
    for (const auto& row : rows) {
        if (row.objective)
            lines.push_back({row.value, optpipe::format_number(*row.objective), optpipe::format_number(row.bound),
                             percent_text(row.gap()), row.method, optpipe::format_number(row.seconds, digits)});
        else
            lines.push_back({row.value, optpipe::printable(row.reason, 400)});
    }
    optpipe::write_table(out, lines);
}

/// A line for each value, with the objective of each way to plan that has a schedule for any of them.
void print_ways(std::ostream& out, const std::string& field, const std::vector<std::string>& values,
                const std::vector<std::string>& ways, const std::vector<sweep_row>& rows) {
    std::vector<optpipe::table_row> lines{{field}};
    for (const auto& value : values)
        lines.push_back({value});
    std::string without;
    for (const auto& way : ways) {
        std::vector<std::string> column;
        for (const auto& value : values) {
            const auto row = std::find_if(rows.begin(), rows.end(), [&](const sweep_row& each) {
                return each.value == value && each.by == way && each.objective;
            });
            column.push_back(row == rows.end() ? "" : optpipe::format_number(*row->objective));
        }
        if (std::all_of(column.begin(), column.end(), [](const auto& cell) { return cell.empty(); })) {
            without += (without.empty() ? "" : ", ") + way;
            continue;
        }
        lines.front().push_back(way);
        for (std::size_t i = 0; i < column.size(); ++i)
            lines[i + 1].push_back(column[i]);
    }
    optpipe::write_table(out, lines);
    if (!without.empty()) out << "no schedule for any value: " << without << '\n';
}

} // namespace

nlohmann::ordered_json setting_of(const std::string& field, const problem_file& fixed, const sweep_options& options) {
    const auto name = name_of(fixed.path);
    const auto text = read_input(fixed.path, optpipe::detail::most_problem_bytes);
    const auto& search = options.search;
    nlohmann::ordered_json setting;
    setting["problem"] = json::parse(with_changes(text, name, fixed.changes));
    setting["field"] = field;
    setting["time_limit"] = search.time_limit ? nlohmann::ordered_json(*search.time_limit) : nullptr;
    setting["seed"] = search.seed;
    setting["gap"] = search.gap;
    setting["without"] = search.without;
    if (search.most_distinct_pairs) setting[most_pairs] = *search.most_distinct_pairs;
    return setting;
}

std::string rows_to_json(const nlohmann::ordered_json& setting, const std::vector<sweep_row>& rows) {
    nlohmann::ordered_json document;
    document["format"] = "optpipe.sweep/1";
    document.update(setting);
    document["rows"] = nlohmann::ordered_json::array();
    for (const auto& row : rows)
        document["rows"].push_back(to_json(row));
    return json_text(document);
}

std::vector<sweep_row> parse_rows(const std::string& text, const std::string& source,
                                  const nlohmann::ordered_json& setting) {
    const auto root = optpipe::detail::parse_json(text, source);
    optpipe::detail::violation_list found;
    std::vector<sweep_row> rows;
    if (!root.is_object()) {
        found.add("", "must be an object");
    } else if (const optpipe::detail::fields top{root, "", found};
               optpipe::detail::format_version(top, "optpipe.sweep/", 1, found) != 0) {
        top.refuse_unknown({"format", "problem", "field", "time_limit", "seed", "gap", "without", most_pairs, "rows"});
        refuse_other_setting(top, setting, found);
        const auto* list = top.list("rows");
        for (std::size_t i = 0; list && i < list->size(); ++i) {
            const auto place = optpipe::detail::element_of("rows", i);
            if ((*list)[i].is_object())
                rows.push_back(read_row({(*list)[i], place + ".", found}, found));
            else
                optpipe::detail::refuse_type(found, place, "an object", (*list)[i]);
        }
    }
    if (!found.empty()) throw optpipe::input_error{source, found.found()};
    return rows;
}

std::string rows_to_csv(const std::string& field, const std::vector<sweep_row>& rows) {
    auto text = csv_line({field, "by", "objective", "bound", "gap", "method", "seconds", "reason"});
    for (const auto& row : rows)
        text += csv_line({row.value, row.by, row.objective ? csv_number(*row.objective) : "",
                          row.objective ? csv_number(row.bound) : "", row.objective ? csv_number(row.gap()) : "",
                          row.method, csv_number(row.seconds), row.reason});
    return text;
}

void print_rows(std::ostream& out, const std::string& field, const std::vector<std::string>& values,
                const std::vector<std::string>& ways, const std::vector<sweep_row>& rows) {
    if (ways.size() == 1)
        print_values(out, field, rows);
    else
        print_ways(out, field, values, ways, rows);
}

} // namespace program
