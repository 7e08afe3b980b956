#include "commands.hpp"
#include "files.hpp"
#include <optpipe/core/format.hpp>
#include <optpipe/formulation/named_plan.hpp>
#include <optpipe/formulation/schedule_of.hpp>
#include <optpipe/formulation/variable_names.hpp>
#include <optpipe/io/escape.hpp>
#include <optpipe/io/json_fields.hpp>
#include <optpipe/io/json_tree.hpp>
#include <optpipe/io/text.hpp>
#include <optpipe/io/write_json.hpp>
#include <optpipe/schedule/bounds/structural_bounds.hpp>
#include <optpipe/schedule/time/evaluate.hpp>

#include <cstddef>
#include <iostream>
#include <string>
#include <string_view>
#include <utility>

namespace program {
namespace {

namespace formulation = optpipe::formulation;

/// Files of earlier versions have no format.
constexpr std::string_view solution_format = "optpipe.solve-result/1";

/// Reads the output of `optpipe solve --out`.
formulation::named_values values_in_json(std::string_view text, const std::string& source) {
    const auto tree = optpipe::detail::parse_json(text, source);
    const auto refuse = [&](std::string place, std::string why) {
        throw optpipe::input_error{source, {{std::move(place), std::move(why)}}};
    };
    if (!tree.is_object() || !tree.contains("solution"))
        refuse("solution", "is missing: not what optpipe solve writes");
    if (const auto format = tree.value("format", nlohmann::json{}); !format.is_null() && format != solution_format)
        refuse("format", "must be \"" + std::string{solution_format} + "\", is " + optpipe::detail::shown(format));
    const auto& solution = tree["solution"];
    if (solution.is_null()) refuse("solution", "there is none");
    if (!solution.is_object()) refuse("solution", "must be an object of names and values");
    formulation::named_values values;
    for (const auto& [name, value] : solution.items()) {
        if (!value.is_number()) refuse("solution." + optpipe::printable(name, 80), "must be a number");
        values[name] = value.get<double>();
    }
    return values;
}

bool is_json(std::string_view text) {
    const auto first = text.find_first_not_of(" \t\r\n");
    return first != std::string_view::npos && text[first] == '{';
}

} // namespace

int import_solution(const import_solution_options& options) {
    outputs files{{{"PROBLEM", options.problem.path}, {"SOLUTION", options.solution}}, {{"--out", options.out}}};
    const auto p = read_problem(options.problem);
    const formulation::operation_table operations{p};
    constexpr std::size_t most_bytes = std::size_t{1} << 30U;
    const auto text = read_input(options.solution, most_bytes);
    const auto source = name_of(options.solution);
    const auto values = is_json(text)
                            ? values_in_json(text, source)
                            : formulation::parse_solution(text, source, formulation::leading_names(operations));
    const auto timed = formulation::schedule_of(operations, formulation::plan_of(operations, values, source));
    if (!timed) {
        std::cerr << "optpipe: " << source << ": its values are no schedule: " << optpipe::reason_text(p, timed.why())
                  << '\n';
        return no_schedule;
    }
    const auto report = optpipe::make_report(p, "imported", *timed, optpipe::bounds_of(p).best());
    files.write("--out", [&] { return optpipe::schedule_to_json(p, report); });
    files.text() << "objective=" << optpipe::format_number(report.measures.objective, 9) << '\n';
    return files.status(success);
}

} // namespace program
