#include "commands.hpp"
#include <optpipe/core/format.hpp>
#include <optpipe/io/escape.hpp>
#include <optpipe/io/file.hpp>
#include <optpipe/milp/io/read_mps.hpp>
#include <optpipe/milp/solve.hpp>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <iostream>
#include <string>
#include <thread>
#include <variant>

namespace program {
namespace {

namespace milp = optpipe::milp;

std::string json_number(double value) { return std::isfinite(value) ? optpipe::exact_number(value) : "null"; }

/// An unbounded model may come with a point, but its objective means nothing.
bool is_solved(const milp::result& r) { return r.incumbent && !std::holds_alternative<milp::unbounded>(r.why); }

std::string json_of(const milp::model& m, const milp::result& r) {
    std::string text = "{\n  \"status\": " + optpipe::json_quoted(milp::status_of(r.why));
    if (const auto* why = std::get_if<milp::stopped>(&r.why))
        text += ",\n  \"stopped_by\": " + optpipe::json_quoted(milp::text_of(why->why));
    text += ",\n  \"objective\": " + (is_solved(r) ? json_number(r.objective) : "null") +
            ",\n  \"bound\": " + json_number(r.bound) +
            ",\n  \"gap\": " + (is_solved(r) ? json_number(milp::relative_gap(r.objective, r.bound)) : "null") +
            ",\n  \"nodes\": " + std::to_string(r.stats.nodes) + ",\n  \"seconds\": " + json_number(r.stats.seconds) +
            ",\n  \"solution\": ";
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
    options.threads = given.threads > 0 ? given.threads : std::max(1U, std::thread::hardware_concurrency());
    options.seed = given.seed;
    options.relative_gap = given.gap;
    if (given.log) options.log = [](std::string_view line) { std::cerr << line << '\n'; };
    return options;
}

/// "optimal objective=17 bound=17 gap=0 nodes=3 seconds=0.04"
void print_summary(const milp::result& r) {
    const auto number = [](const char* name, double value) {
        return std::string{name} + '=' + optpipe::format_number(value, 9);
    };
    std::cout << milp::status_of(r.why);
    if (const auto* why = std::get_if<milp::stopped>(&r.why)) std::cout << " (" << milp::text_of(why->why) << ')';
    if (is_solved(r)) std::cout << ' ' << number("objective", r.objective);
    if (std::isfinite(r.bound)) std::cout << ' ' << number("bound", r.bound);
    if (is_solved(r) && std::isfinite(r.bound))
        std::cout << ' ' << number("gap", milp::relative_gap(r.objective, r.bound));
    std::cout << " nodes=" << r.stats.nodes << ' ' << number("seconds", r.stats.seconds) << '\n';
}

} // namespace

int solve(const solve_options& options) {
    const auto m = milp::read_mps(options.model);
    const auto r = milp::solve(m, options_from(options));
    if (!options.out.empty()) optpipe::write_file(options.out, json_of(m, r));
    print_summary(r);
    return is_solved(r) ? success : no_solution;
}

} // namespace program
