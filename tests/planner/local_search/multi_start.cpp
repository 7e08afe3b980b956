#include "optpipe/planner/local_search/multi_start.hpp"

#include "optpipe/planner/strategies/published_builders.hpp"
#include "optpipe/schedule/builders/all.hpp"
#include "optpipe/schedule/construct/within_memory.hpp"
#include "optpipe/schedule/time/evaluate.hpp"
#include "optpipe/schedule/time/validate.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <stop_token>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

using namespace optpipe;

namespace {

/// Three ranks with two thirds of the memory of 1F1B on the first one; stashes are kept or recomputed.
problem with_options(std::size_t microbatches = 6) {
    stage_costs unit;
    unit.forward = unit.backward_input = unit.backward_weight = duration{1.0};
    unit.activation = unit.weight_stash = memory_size{1.0};
    problem p{to_any_graph(graph<dynamic, dynamic>{3, microbatches}), per_stage<stage_costs>(3, unit)};
    for (auto& limit : p.memory_limit)
        limit = memory_size{2.0};
    for (auto& options : p.storage)
        options = {keep_stash(unit), {"full", memory_size{0.25}, {}, duration{1.0}, {}, {}}};
    return p;
}

std::vector<search_start> starts_for(const problem& p) {
    search_state state{p};
    run_log log;
    return run_published_builders(state, {}, 1, log, {}).best;
}

/// The objectives of all offers of a search.
std::vector<duration> found_from(const problem& p, std::vector<search_start> starts, const multi_start_options& options,
                                 search_limits limits = {}) {
    search_state state{p, std::move(limits)};
    state.offer(one_at_a_time(p), "start");
    multi_start_search(state, std::move(starts), "local-search", options);
    std::vector<duration> result;
    for (const auto& step : state.history())
        if (step.strategy == "local-search") result.push_back(step.objective);
    CHECK(validate(p, *state.incumbent()).empty());
    return result;
}

} // namespace

TEST_CASE("builders with one storage option for all give the starts, the best first") {
    const auto p = with_options();
    const auto starts = starts_for(p);
    CHECK(starts.size() > 1);
    CHECK(starts.size() <= detail::builder_parameters{}.starts);
    auto last = duration{};
    for (const auto& each : starts) {
        CHECK(each.objective > last);
        CHECK(validate(p, each.made).empty());
        CHECK(objective_of(p, each.made) == each.objective);
        last = each.objective;
    }
}

TEST_CASE(
    "a search from several starts is at least as good as the best of them, and the same on any number of threads") {
    const auto p = with_options();
    const auto starts = starts_for(p);
    const auto one = found_from(p, starts, {.seed = 3, .threads = 1});
    REQUIRE_FALSE(one.empty());
    CHECK(one.back() <= starts.front().objective);
    CHECK(found_from(p, starts, {.seed = 3, .threads = 2}) == one);
    CHECK(found_from(p, starts, {.seed = 3, .threads = 1}) == one);
}

TEST_CASE("starts may come in any order") {
    const auto p = with_options();
    const auto best = starts_for(p).front();
    const auto worst = one_at_a_time(p);
    const auto timed = *simulate(p, worst);
    const auto alone = found_from(p, {{timed, objective_of(p, timed)}, best}, {});
    REQUIRE_FALSE(alone.empty());
    CHECK(alone.back() <= best.objective);
}

TEST_CASE("a single start isn't searched: the strategies begin with it") {
    const auto p = with_options();
    CHECK(found_from(p, {starts_for(p).front()}, {}).empty());
    CHECK(found_from(p, {}, {}).empty());
}

TEST_CASE("without a deadline as many starts are searched as there is work for") {
    const auto p = with_options();
    multi_start_options options;
    options.with.most_work = 1.0;
    CHECK(found_from(p, starts_for(p), options).empty());
    search_limits limits;
    limits.deadline = std::chrono::steady_clock::now() + std::chrono::hours{1};
    CHECK_FALSE(found_from(p, starts_for(p), options, limits).empty());
    options.deterministic = true;
    CHECK(found_from(p, starts_for(p), options, limits).empty());
}

TEST_CASE("where there is no time left nothing is searched") {
    const auto p = with_options();
    search_limits limits;
    limits.deadline = std::chrono::steady_clock::now();
    CHECK(found_from(p, starts_for(p), {}, limits).empty());
}

TEST_CASE("a search that is abandoned on the way ends with its starts") {
    const auto p = with_options();
    std::stop_source source;
    search_limits limits;
    limits.abandon = source.get_token();
    search_state state{p, limits};
    state.offer(one_at_a_time(p), "start");
    const auto offered = state.objective();
    const auto starts = starts_for(p);
    source.request_stop();
    multi_start_search(state, starts, "local-search", {});
    CHECK(state.objective() == offered);
}

TEST_CASE("without a deadline builders that search run with the three storage options that did best") {
    auto p = with_options();
    for (auto& options : p.storage)
        for (const double held : {0.3, 0.4, 0.5})
            options.push_back(
                {"full-" + std::to_string(held).substr(0, 3), memory_size{held}, {}, duration{1.0}, {}, {}});
    const auto not_skipped = [&](const std::string& builder, search_limits limits) {
        search_state state{p, std::move(limits)};
        run_log log;
        std::size_t count = 0;
        for (const auto& each : run_published_builders(state, {}, 1, log, {}).results) {
            CHECK_FALSE(each.method.empty());
            const bool is_skipped = each.why.sentence.view().find("other storage options") != std::string_view::npos;
            if (each.method.starts_with(builder + ":") && !is_skipped) ++count;
        }
        return count;
    };
    CHECK(not_skipped("zb-auto", {}) == 3);
    // The constructive planner makes only a few trials, so it runs with more options on small problems.
    CHECK(not_skipped("adaptive", {}) == 5);
    search_limits limits;
    limits.deadline = std::chrono::steady_clock::now() + std::chrono::hours{1};
    CHECK(not_skipped("zb-auto", limits) == 5);
}
