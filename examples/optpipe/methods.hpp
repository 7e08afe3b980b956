#pragma once

#include "commands.hpp"
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

/// The builders take long to compile, so only methods.cpp includes them.
namespace program {

/// The result of a method, and its running time.
struct attempt {
    std::string method;
    optpipe::outcome<optpipe::schedule> result;
    double seconds = 0.0;
};

struct method_options {
    /// Parameters of a builder, as in "g=3"; or, if stages have storage options, one of them for all stages, as in
    /// "storage=full" (`optpipe::method_settings`).
    std::optional<std::string> settings{};
    /// Whether only one method was requested. This method then runs even if it has nothing to choose.
    bool is_only = false;
    /// Time limit for the builders that search.
    std::optional<double> time_limit{};
    std::uint64_t seed = 1;
    /// The most distinct pairs that a rank may run; further pairs are split.
    std::optional<std::size_t> most_distinct_pairs{};
    /// A stop request ends the running method, which isn't listed without a schedule. No further method runs.
    std::stop_token stop{};
};

/// A method as the user writes it: without settings, or with some, as in "gis:g=3" or "1f1b:storage=full".
struct named_method {
    std::string name;
    std::optional<std::string> settings{};
};
named_method method_of(const std::string& text);

using wanted_method = std::function<bool(std::string_view name)>;

/// Runs the methods for which `wanted(name)` is true. If stages have storage options, each method uses the best one for
/// all stages, unless the settings name one.
std::vector<attempt> run_methods(const optpipe::problem& p, const wanted_method& wanted,
                                 const method_options& options = {});

/// Throws if an option is given that only the search uses. `why` says why there is no search.
void refuse_search_options(const search_options& given, bool deterministic, const std::string& why);

/// Throws if a seed or a time limit is given, and none of the methods uses it.
void refuse_unused_limits(const search_options& given, const std::vector<std::string>& methods);

/// The names of all methods.
std::vector<std::string> all_methods();

/// Whether `method` is the constructive planner, which gives up only if nothing fits. The constructive planner isn't a
/// published method.
bool is_constructive(std::string_view method);

optpipe::comparison_row row_of(const optpipe::problem& p, const attempt& a);

/// A bound that exceeds the objective of a schedule by rounding is lowered to the objective.
optpipe::duration without_rounding(optpipe::duration bound, optpipe::duration objective);

} // namespace program
