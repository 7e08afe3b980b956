#include "commands.hpp"
#include "files.hpp"
#include "interruption.hpp"
#include <optpipe/core/format.hpp>
#include <optpipe/io/escape.hpp>
#include <optpipe/milp/io/read_model.hpp>
#include <optpipe/milp/io/read_text.hpp>
#include <optpipe/milp/solve.hpp>
#include <optpipe/parallel/arena.hpp>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <iostream>
#include <string>
#include <variant>

namespace program {
namespace {

namespace milp = optpipe::milp;

/// 0 for -0.
std::string json_number(double value) { return std::isfinite(value) ? optpipe::exact_number(value + 0.0) : "null"; }

/// An unbounded model may have a point, but its objective means nothing.
bool is_solved(const milp::result& r) { return r.incumbent && !std::holds_alternative<milp::unbounded>(r.why); }

std::string json_of(const milp::model& m, const milp::result& r, double gap) {
    std::string text =
        "{\n  \"format\": \"optpipe.solve-result/1\",\n  \"status\": " + optpipe::json_quoted(milp::status_of(r.why));
    if (const auto* why = std::get_if<milp::stopped>(&r.why))
        text += ",\n  \"stopped_by\": " + optpipe::json_quoted(milp::text_of(why->why));
    text += ",\n  \"objective\": " + (is_solved(r) ? json_number(r.objective) : "null") +
            ",\n  \"bound\": " + json_number(r.bound) +
            ",\n  \"gap\": " + (is_solved(r) ? json_number(milp::relative_gap(r.objective, r.bound)) : "null") +
            ",\n  \"gap_tolerance\": " + json_number(gap) + ",\n  \"nodes\": " + std::to_string(r.stats.nodes) +
            ",\n  \"seconds\": " + json_number(r.stats.seconds) + ",\n  \"solution\": ";
    if (!is_solved(r)) return text + "null\n}\n";
    std::string separator = "{\n    ";
    for (const milp::variable x : m.all_variables()) {
        text +=
            separator + optpipe::json_quoted(milp::name_of(m, x)) + ": " + json_number((*r.incumbent)[x.position()]);
        separator = ",\n    ";
    }
    return text + (m.variables() == 0 ? "{}\n}\n" : "\n  }\n}\n");
}

milp::solve_options options_from(const solve_options& given) {
    milp::solve_options options;
    if (given.time_limit) options.time_limit = std::chrono::duration<double>{*given.time_limit};
    options.threads = given.threads > 0 ? given.threads : optpipe::parallel::available_cores();
    options.seed = given.seed;
    options.relative_gap = given.gap;
    if (given.log) options.log = [](std::string_view line) { std::cerr << line << '\n'; };
    return options;
}

/// For example "optimal objective=17 bound=17 gap=0 nodes=3 seconds=0.04"; "optimal (gap tolerance 0.01) ..." if a gap
/// was given.
void print_summary(std::ostream& out, const milp::result& r, double gap) {
    const auto number = [](const char* name, double value) {
        return std::string{name} + '=' + optpipe::format_number(value, 9);
    };
    out << milp::status_of(r.why);
    if (const auto* why = std::get_if<milp::stopped>(&r.why)) out << " (" << milp::text_of(why->why) << ')';
    if (gap > 0.0 && std::holds_alternative<milp::optimal>(r.why))
        out << " (gap tolerance " << optpipe::format_number(gap, 9) << ')';
    if (is_solved(r)) out << ' ' << number("objective", r.objective);
    if (std::isfinite(r.bound)) out << ' ' << number("bound", r.bound);
    if (is_solved(r) && std::isfinite(r.bound)) out << ' ' << number("gap", milp::relative_gap(r.objective, r.bound));
    out << " nodes=" << r.stats.nodes << ' ' << number("seconds", r.stats.seconds) << '\n';
}

milp::model read_model(const std::string& path) {
    constexpr std::size_t most_bytes = std::size_t{1} << 30U;
    if (path != "-") return milp::read_model(path);
    auto text = read_input(path, most_bytes);
    if (milp::detail::is_gzip(text)) text = milp::detail::inflated(name_of(path), text, most_bytes);
    return milp::parse_model(text, name_of(path));
}

bool was_stopped(const milp::result& r) {
    const auto* why = std::get_if<milp::stopped>(&r.why);
    return why && why->why == milp::limit::stop_requested;
}

} // namespace

int solve(const solve_options& options) {
    outputs files{{{"MODEL", options.model}}, {{"--out", options.out}}};
    const auto m = read_model(options.model);
    const interruption interrupted{true};
    auto how = options_from(options);
    how.stop = interrupted.token();
    const auto r = milp::solve(m, how);
    files.write("--out", [&] { return json_of(m, r, options.gap); });
    print_summary(files.text(), r, options.gap);
    return files.status(was_stopped(r) ? stopped_by_signal : is_solved(r) ? success : no_solution);
}

} // namespace program
