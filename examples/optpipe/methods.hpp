#pragma once

#include <optpipe/core/outcome.hpp>
#include <optpipe/io/text.hpp>
#include <optpipe/pipeline/problem.hpp>
#include <optpipe/schedule/schedule.hpp>

#include <cstdint>
#include <functional>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

/// The builders, which take long to compile: only methods.cpp sees them.
namespace program {

/// What a method made of the problem, and how long it took.
struct attempt {
    std::string method;
    optpipe::outcome<optpipe::schedule> result;
    double seconds = 0.0;
};

struct method_options {
    /// For a builder with parameters, as "g=3"; "storage=full" for all, where stages have storage options.
    std::optional<std::string> settings{};
    /// Whether one method alone was asked for, and runs even where there is nothing for it to choose.
    bool is_only = false;
    /// For the builders that search.
    std::optional<double> time_limit{};
    std::uint64_t seed = 1;
    /// Once it is requested, no further method runs, and those that search end.
    std::stop_token stop{};
};

/// A method as its user writes it: alone, with parameters, as "gis:g=3", or with a storage option, as
/// "1f1b:storage=full".
struct named_method {
    std::string name;
    std::optional<std::string> settings{};
};
named_method method_of(const std::string& text);

using wanted_method = std::function<bool(std::string_view name)>;

/// Runs those that `wanted(name)` asks for. Where stages have storage options, each with the best one for all of them,
/// unless the settings name one.
std::vector<attempt> run_methods(const optpipe::problem& p, const wanted_method& wanted,
                                 const method_options& options = {});

/// Whether it is that of the planner that gives up only where nothing fits.
bool is_constructive(const attempt& a);

optpipe::comparison_row row_of(const optpipe::problem& p, const attempt& a);

} // namespace program
