#include "search.hpp"

#include "methods.hpp"
#include "plan_json.hpp"
#include <optpipe/core/format.hpp>
#include <optpipe/io/escape.hpp>
#include <optpipe/planner/plan.hpp>

#include <algorithm>
#include <chrono>
#include <iostream>
#include <string_view>

namespace program {
namespace {

/// For example "local-search   2 schedules, the best 943.2 ms; bound 940 ms; 0.31 s".
std::string line_of(const optpipe::contribution& by, const std::string& unit) {
    constexpr std::size_t column = 15;
    std::string finds;
    if (by.schedules > 0)
        finds = std::to_string(by.schedules) + (by.schedules == 1 ? " schedule, " : " schedules, the best ") +
                optpipe::format_number(by.objective) + unit;
    if (by.bounds > 0) finds += (finds.empty() ? "" : "; ") + ("bound " + optpipe::format_number(by.bound)) + unit;
    return by.name + std::string(by.name.size() < column ? column - by.name.size() : 1, ' ') + finds + "; " +
           optpipe::format_number(by.seconds, 3) + " s\n";
}

std::string cache_text(const optpipe::plan_result& planned) {
    if (is_from_cache(planned)) return "; the plan is from cache";
    switch (planned.cached) {
    case optpipe::cache_use::none: return "";
    case optpipe::cache_use::exact: return "; the search began with a plan from cache";
    case optpipe::cache_use::near: return "; the search began with plans of similar problems from cache";
    }
    return "";
}

optpipe::baseline baseline_of(const optpipe::problem& p, const optpipe::builder_result& b,
                              optpipe::duration objective) {
    if (!b.objective) return {b.method, "", optpipe::reason_text(p, b.why)};
    optpipe::comparison_row row{b.method, optpipe::measures{}, "", b.seconds};
    row.result->objective = *b.objective;
    return optpipe::make_baseline(row, objective);
}

/// The name of a method without its storage option.
std::string_view builder_of(std::string_view method) { return method.substr(0, method.find(":storage=")); }

/// For one builder with two storage options: whether the first result is better, or lacks less memory.
bool is_better(const optpipe::builder_result& a, const optpipe::builder_result& b) {
    if (a.objective && b.objective) return *a.objective < *b.objective;
    if (a.objective || b.objective) return a.objective.has_value();
    return a.why.needed - a.why.limit < b.why.needed - b.why.limit;
}

} // namespace

optpipe::plan_options options_from(const search_options& given) {
    optpipe::plan_options options;
    if (given.time_limit) options.time_limit = std::chrono::duration<double>{*given.time_limit};
    options.threads = given.threads;
    options.seed = given.seed;
    options.gap = given.gap;
    options.without = given.without;
    if (given.most_distinct_pairs) options.most_distinct_pairs = *given.most_distinct_pairs;
    options.cache = given.cache;
    options.warn = [](std::string_view sentence) {
        std::cerr << "optpipe: note: " << optpipe::printable(sentence, 400) << '\n';
    };
    return options;
}

std::string story_of(const optpipe::problem& p, const optpipe::plan_result& planned) {
    const auto unit = unit_of(p);
    std::string text;
    for (const auto& by : planned.contributions)
        if (by.schedules > 0 || by.bounds > 0) text += line_of(by, unit);
    text += std::string{optpipe::text_of(planned.why)} + " after " + optpipe::format_number(planned.seconds, 3) + " s" +
            cache_text(planned);
    if (const auto* published = optpipe::best_published(planned))
        text += "; the best published schedule is " + published->method + "'s, " +
                optpipe::format_number(*published->objective) + unit;
    return text + '\n';
}

std::vector<optpipe::baseline> baselines_of(const optpipe::problem& p, const optpipe::plan_result& planned) {
    const auto by_itself = builder_of(planned.method);
    std::vector<const optpipe::builder_result*> best;
    for (const auto& b : planned.builders) {
        if (builder_of(b.method) == by_itself || (!b.objective && !is_made_for_it(b.why))) continue;
        const auto same = std::find_if(best.begin(), best.end(), [&](const optpipe::builder_result* other) {
            return builder_of(other->method) == builder_of(b.method);
        });
        if (same == best.end())
            best.push_back(&b);
        else if (is_better(b, **same))
            *same = &b;
    }
    std::vector<optpipe::baseline> others;
    for (const auto* b : best)
        others.push_back(baseline_of(p, *b, planned.objective));
    return others;
}

optpipe::html_options page_of(const optpipe::problem& p, const optpipe::plan_result& planned) {
    optpipe::html_options page;
    page.seconds = planned.seconds;
    page.shows_idle = true;
    for (const auto& step : planned.history)
        page.progress.push_back({step.strategy, step.seconds,
                                 step.objective.is_unlimited() ? std::nullopt : std::optional{step.objective},
                                 step.bound});
    const auto* published = optpipe::best_published(planned);
    if (!published || published->method == planned.method) return page;
    const auto method = method_of(published->method);
    const auto built = run_methods(p, [&](std::string_view name) { return name == method.name; }, {method.settings});
    if (!built.empty() && built.front().result)
        page.beside = {published->method, optpipe::make_report(p, published->method, *built.front().result)};
    return page;
}

} // namespace program
