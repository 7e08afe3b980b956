#include "methods.hpp"

#include "commands.hpp"
#include <optpipe/core/deadline.hpp>
#include <optpipe/core/error.hpp>
#include <optpipe/core/stop_check.hpp>
#include <optpipe/core/tolerance.hpp>
#include <optpipe/io/escape.hpp>
#include <optpipe/io/text.hpp>
#include <optpipe/schedule.hpp>
#include <optpipe/schedule/builders/builder.hpp>
#include <optpipe/schedule/builders/builder_parameters.hpp>
#include <optpipe/schedule/builders/method_name.hpp>
#include <optpipe/schedule/construct/distinct_pairs.hpp>
#include <optpipe/schedule/construct/uniform_storage.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <limits>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace program {
namespace {

using clock = std::chrono::steady_clock;

/// The constructive planner, which searches for at most `time_limit` seconds, or until it is told to stop.
struct stoppable_adaptive {
    static constexpr std::string_view name = optpipe::adaptive.name;
    static constexpr bool any_graph = optpipe::plans_any_graph<optpipe::adaptive_builder<>>;
    optpipe::adaptive_builder<> build{};
    std::optional<double> time_limit{};
    std::stop_token stop{};

    optpipe::outcome<optpipe::order> operator()(const optpipe::problem& p) const {
        const std::chrono::duration<double> limit{time_limit.value_or(std::numeric_limits<double>::infinity())};
        return build(p, optpipe::stop_check{stop, optpipe::deadline_after(clock::now(), limit)});
    }
};

/// Throws if a stage doesn't have the option.
optpipe::storage_by_stage<optpipe::dynamic> options_named(const optpipe::problem& p, std::string_view method,
                                                          const std::string& name) {
    if (const auto found = optpipe::find_common_option(p, name)) return *found;
    std::string known;
    for (const auto& other : optpipe::common_option_names(p))
        known += (known.empty() ? "" : ", ") + optpipe::printable(other.view(), 60);
    throw optpipe::input_error{"method " + std::string{method},
                               {{"storage", "every stage must have \"" + optpipe::printable(name, 60) +
                                                "\"; all stages have " + (known.empty() ? "none in common" : known)}}};
}

/// Whether a builder plans the problem itself, not one problem for each storage option that all stages have. For
/// problems that aren't plain, the constructive planner chooses the options of stages itself.
template <class Builder> bool is_planned_as_it_is(const optpipe::problem& p) {
    constexpr bool is_constructive = Builder::name == optpipe::adaptive.name;
    return is_described_by_costs(p) || (is_constructive && !is_plain(p));
}

/// For a problem with lists of storage options: runs the builder with the requested option, or with the best one.
template <class Builder>
attempt run(const optpipe::problem& p, const Builder& builder, const std::optional<std::string>& storage,
            optpipe::stop_check stops) {
    const std::string name{Builder::name};
    if (storage) {
        const auto options = options_named(p, name, *storage);
        return {optpipe::method_with_storage(name, *storage),
                optpipe::build_uniform_schedule(p, builder, options, stops), 0.0};
    }
    if (is_planned_as_it_is<Builder>(p)) return {name, optpipe::build_schedule(p, builder, stops), 0.0};
    auto best = optpipe::build_best_uniform_schedule(p, builder, stops);
    return {best.result ? optpipe::method_with_storage(name, best.option.view()) : name, std::move(best.result), 0.0};
}

template <class Builder> attempt run(const optpipe::problem& p, Builder builder, const method_options& options) {
    const auto settings =
        options.settings ? optpipe::parse_method_settings(*options.settings) : optpipe::method_settings{};
    if (settings.parameters) optpipe::set_parameters(builder, *settings.parameters);
    if constexpr (requires { builder.seed; }) builder.seed = options.seed;
    const auto start = clock::now();
    const auto elapsed = [&] { return std::chrono::duration<double>(clock::now() - start).count(); };
    attempt done;
    if constexpr (std::is_same_v<Builder, optpipe::adaptive_builder<>>) {
        // The storage options share the effort, or the time limit.
        const bool is_one = settings.storage || is_planned_as_it_is<Builder>(p);
        const auto tries = is_one ? 1 : std::max<std::size_t>(1, optpipe::uniform_choices(p).size());
        builder.effort = options.time_limit ? optpipe::dynamic : builder.effort / tries;
        auto limit = options.time_limit;
        if (limit) *limit /= static_cast<double>(tries);
        // A stopped planner returns its best schedule.
        done = run(p, stoppable_adaptive{builder, limit, options.stop}, settings.storage, {});
    } else {
        done = run(p, builder, settings.storage, optpipe::stop_check{options.stop});
    }
    done.seconds = elapsed();
    return done;
}

/// Runs a builder that chooses the storage options itself.
template <class Builder>
attempt run_as_it_is(const optpipe::problem& p, Builder builder, const method_options& options) {
    if (options.settings) optpipe::set_parameters(builder, *options.settings); // refuses any parameter: there are none
    const auto start = clock::now();
    attempt done{std::string{Builder::name}, optpipe::build_schedule(p, builder, optpipe::stop_check{options.stop}),
                 0.0};
    done.seconds = std::chrono::duration<double>(clock::now() - start).count();
    return done;
}

/// Whether the method draws random numbers.
bool uses_seed(std::string_view method) {
    bool found = false;
    const auto look = [&](const auto& builder) {
        if constexpr (requires { builder.seed; }) found = found || builder.name == method;
    };
    optpipe::for_each_builder(look);
    optpipe::for_each_graph_builder(look);
    return found;
}

} // namespace

named_method method_of(const std::string& text) {
    const auto colon = text.find(':');
    if (colon == std::string::npos) return {text, std::nullopt};
    return {text.substr(0, colon), text.substr(colon + 1)};
}

std::vector<attempt> run_methods(const optpipe::problem& p, const wanted_method& wanted,
                                 const method_options& options) {
    std::vector<attempt> attempts;
    const auto add = [&](std::string_view name, const auto& make) {
        if (!wanted(name) || options.stop.stop_requested()) return;
        auto made = make();
        if (made.result && options.most_distinct_pairs)
            made.result = optpipe::with_most_distinct_pairs(p, *made.result, *options.most_distinct_pairs);
        // The failure of a stopped method says nothing about the method.
        if (made.result || !options.stop.stop_requested()) attempts.push_back(std::move(made));
    };
    optpipe::for_each_builder(
        [&](const auto& builder) { add(builder.name, [&] { return run(p, builder, options); }); });
    optpipe::for_each_storage_builder([&](const auto& builder) {
        if (!is_described_by_costs(p) || options.is_only)
            add(builder.name, [&] { return run_as_it_is(p, builder, options); });
    });
    optpipe::for_each_graph_builder([&](const auto& builder) {
        if (!is_plain(p) || options.is_only) add(builder.name, [&] { return run(p, builder, options); });
    });
    return attempts;
}

void refuse_search_options(const search_options& given, bool deterministic, const std::string& why) {
    const std::pair<const char*, bool> options[]{{"--gap", given.gap > 0.0},
                                                 {"--without", !given.without.empty()},
                                                 {"--cache", !given.cache.empty()},
                                                 {"--deterministic", deterministic}};
    for (const auto& [name, is_given] : options)
        if (is_given) throw optpipe::error{name + (": " + why)};
}

void refuse_unused_limits(const search_options& given, const std::vector<std::string>& methods) {
    const auto any = [&](const auto& uses_it) { return std::any_of(methods.begin(), methods.end(), uses_it); };
    const auto refuse = [](const char* option) {
        throw optpipe::error{std::string{option} + ": without effect, as the method doesn't use it"};
    };
    if (given.seed != search_options{}.seed && !any(uses_seed)) refuse("--seed");
    if (given.time_limit && !any(is_constructive)) refuse("--time-limit");
}

bool is_constructive(std::string_view method) { return method.starts_with(optpipe::adaptive.name); }

optpipe::comparison_row row_of(const optpipe::problem& p, const attempt& a) {
    if (!a.result) return optpipe::make_comparison_row(p, a.method, a.result.why(), a.seconds);
    return optpipe::make_comparison_row(optpipe::make_report(p, a.method, *a.result), a.seconds);
}

optpipe::duration without_rounding(optpipe::duration bound, optpipe::duration objective) {
    return bound <= objective + optpipe::tolerance{}.at(objective) ? std::min(bound, objective) : bound;
}

std::vector<std::string> all_methods() {
    const auto names = optpipe::builder_names();
    return {names.begin(), names.end()};
}

std::string method_names() {
    std::string names;
    for (const auto& name : all_methods())
        names += (names.empty() ? "" : ", ") + name;
    return names;
}

} // namespace program
