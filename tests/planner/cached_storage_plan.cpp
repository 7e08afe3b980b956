#include "optpipe/core/tolerance.hpp"
#include "optpipe/pipeline/validate_problem.hpp"
#include "optpipe/planner/plan.hpp"
#include "optpipe/planner/strategies/local_search_strategy.hpp"
#include "optpipe/schedule/builders/all.hpp"
#include "oracle/exhaustive.hpp"
#include "oracle/random_cases.hpp"
#include "oracle/random_problem.hpp"
#include "oracle/reference_checker.hpp"
#include "planner/cache/folder.hpp"
#include "planner/portfolio/fake_strategies.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <filesystem>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

using namespace optpipe;

namespace {

/// A few moves, which choose storage options.
struct quick_local_search : local_search_strategy {
    static strategy_traits traits(const problem&) {
        return {.knows_storage_options = true, .randomized = true, .first_effort = 400};
    }
};

/// Counts its calls.
struct counter : fake::counter {
    static strategy_traits traits(const problem&) { return {.knows_storage_options = true}; }
};

/// Stages that may keep, offload or recompute their stashes, or two of these, with too little memory to keep all.
problem stored_problem(std::size_t ranks = 3, std::size_t microbatches = 6, double limit = 1.5) {
    const stage_costs c{duration{1.0}, duration{1.1}, duration{0.9}, memory_size{1.0}, memory_size{0.5}, {}};
    problem p{to_any_graph(graph<dynamic, dynamic>{ranks, microbatches}), per_stage<stage_costs>(ranks, c)};
    const auto all = c.activation;
    const auto half = memory_size{0.5};
    const transfer_times times{duration{1.3}, duration{1.3}};
    for (auto& list : p.storage) {
        list.push_back({"offload", all, {}, {}, all, times});
        list.push_back({"ahead", half, duration{0.6}, {}, {}, {}});
        list.push_back({"inside", half, {}, duration{0.6}, {}, {}});
        list.push_back({"both", half, duration{0.6}, {}, half, transfer_times{duration{0.7}, duration{0.7}}});
    }
    for (auto& l : p.memory_limit)
        l = memory_size{limit};
    return p;
}

/// Without builders, which would find most results of the cache.
plan_options without_builders(std::string cache = {}) {
    plan_options options{.cache = std::move(cache)};
    for_each_builder([&](const auto& build) { options.without.emplace_back(build.name); });
    for_each_storage_builder([&](const auto& build) { options.without.emplace_back(build.name); });
    return options;
}

void check_valid(const problem& p, const plan_result& planned) {
    const auto verdict = oracle::judge(p, planned.schedule);
    CHECK_MESSAGE(verdict.valid(), verdict.text());
    CHECK(planned.objective.value() == doctest::Approx(verdict.objective));
    CHECK(planned.bound <= planned.objective);
}

/// The number of stages and microbatches whose option's name begins with `name`.
std::size_t uses_of(const problem& p, const schedule& s, std::string_view name) {
    return static_cast<std::size_t>(
        std::count_if(s.operations.begin(), s.operations.end(), [&](const timed_operation& timed) {
            return timed.op.kind == operation_kind::forward && storage_of(p, timed.op).name.view().starts_with(name);
        }));
}

} // namespace

TEST_CASE("the second time a plan with storage options comes from the cache, in whatever units, names and order") {
    const temporary_folder folder;
    std::atomic<std::size_t> calls{0};
    const auto strategies = fake::usual_with({quick_local_search{}, counter{{&calls}}});
    auto p = stored_problem();
    const plan_options options{.cache = folder.path().string()};
    const auto first = plan(p, options, strategies);
    REQUIRE(first);
    CHECK(first->cached == cache_use::none);
    CHECK(calls > 0);
    CHECK(uses_of(p, first->schedule, "keep") < 18);
    calls = 0;

    const auto same = plan(p, options, strategies);
    REQUIRE(same);
    CHECK(same->cached == cache_use::exact);
    CHECK(same->objective == first->objective);
    CHECK(same->bound.value() == doctest::Approx(first->bound.value()).epsilon(1e-9));
    CHECK(same->method == first->method);
    CHECK(same->why == first->why);
    CHECK(calls == 0);
    check_valid(p, *same);

    for (auto& c : p.costs) {
        c.forward = 3.0 * c.forward;
        c.backward_input = 3.0 * c.backward_input;
        c.backward_weight = 3.0 * c.backward_weight;
    }
    for (auto& list : p.storage) {
        std::reverse(list.begin(), list.end());
        for (auto& o : list) {
            o.name = bounded_text<32>{o.name.view(), "-renamed"};
            o.recompute = 3.0 * o.recompute;
            o.backward_extra = 3.0 * o.backward_extra;
            if (o.transfer) o.transfer = transfer_times{3.0 * o.transfer->offload, 3.0 * o.transfer->reload};
        }
    }
    const auto other = plan(p, options, strategies);
    REQUIRE(other);
    CHECK(other->cached == cache_use::exact);
    CHECK(calls == 0);
    CHECK(other->objective.value() == doctest::Approx(3.0 * first->objective.value()));
    CHECK(other->bound.value() == doctest::Approx(3.0 * first->bound.value()));
    for (const auto* name : {"keep", "offload", "ahead", "inside", "both"})
        CHECK(uses_of(p, other->schedule, name) == uses_of(stored_problem(), first->schedule, name));
    check_valid(p, *other);
}

TEST_CASE("with a time limit the search goes on from a kept plan with storage options") {
    const temporary_folder folder;
    auto options = without_builders(folder.path().string());
    const auto p = stored_problem(3, 8, 1.25);
    REQUIRE(plan(p, options, {quick_local_search{}}));
    for (const bool deterministic : {false, true}) {
        CAPTURE(deterministic);
        std::atomic<std::size_t> calls{0};
        // Enough time for a strategy to be called on any machine; the search ends sooner.
        options.time_limit = std::chrono::duration<double>{2.0};
        options.deterministic = deterministic;
        const auto planned = plan(p, options, {counter{{&calls}}});
        REQUIRE(planned);
        CHECK(planned->cached == cache_use::exact);
        CHECK(planned->method == "local-search");
        CHECK(calls > 0);
        check_valid(p, *planned);
    }
}

TEST_CASE("other microbatches, limits, costs and lists start from cached plans with storage options") {
    const temporary_folder folder;
    const auto options = without_builders(folder.path().string());
    const auto p = stored_problem(3, 6, 1.25);
    const auto known = plan(p, options, {quick_local_search{}});
    REQUIRE(known);
    const auto check = [&](const problem& like) {
        // Nothing searches: anything better than one microbatch at a time is from the cache.
        const auto alone = plan(like, without_builders(), {});
        auto read_only = options;
        const temporary_folder copy;
        std::filesystem::copy(folder.path(), copy.path(), std::filesystem::copy_options::recursive);
        read_only.cache = copy.path().string();
        const auto warm = plan(like, read_only, {});
        REQUIRE(alone);
        REQUIRE(warm);
        CHECK(warm->cached == cache_use::near);
        CHECK(warm->objective < alone->objective);
        // The bound from the cache comes first, and units rounded it.
        CHECK(warm->bound + tolerance{}.at(alone->bound) >= alone->bound);
        check_valid(like, *warm);
    };
    check(stored_problem(3, 4, 1.25));
    check(stored_problem(3, 11, 1.25));
    check(stored_problem(3, 6, 2.0));
    auto costs = p;
    for (auto& list : costs.storage)
        for (auto& o : list)
            o.recompute = 1.1 * o.recompute;
    check(costs);
    auto more = p;
    for (auto& list : more.storage) {
        list.push_back({"full", memory_size{0.1}, {}, duration{1.0}, {}, {}});
        std::swap(list.front(), list.back());
    }
    check(more);
    auto fewer = p;
    for (auto& list : fewer.storage)
        list.erase(list.begin() + 2); // the other way to recompute holds less
    check(fewer);
}

TEST_CASE("where the options of a kept plan can't be replaced, it isn't used") {
    const temporary_folder folder;
    const auto options = without_builders(folder.path().string());
    const auto known = stored_problem(3, 6, 0.8);
    REQUIRE(plan(known, options, {quick_local_search{}}));
    auto p = known;
    for (auto& list : p.storage) {
        const auto keep = list.front();
        list.clear();
        list.push_back(keep);
    }
    for (auto& l : p.memory_limit)
        l = memory_size{1.0};
    // The kept plan has several microbatches in flight, and there is memory for one stash.
    const auto planned = plan(p, options, {});
    REQUIRE(planned);
    CHECK(planned->cached == cache_use::none);
    check_valid(p, *planned);
}

TEST_CASE("random problems with storage options: plans from a cache are valid, and so are their bounds") {
    std::size_t near = 0;
    for (std::uint64_t seed = 1; seed <= oracle::random_cases(60); ++seed) {
        CAPTURE(seed);
        const temporary_folder folder;
        random_numbers random{seed};
        const auto given = oracle::make_random_problem(
            random, {.ranks = 2, .stages = 3, .microbatches = 3, .cells = 4, .storage_percent = 100});
        const auto& p = given.problem;
        plan_options options = without_builders(folder.path().string());
        const auto first = plan(p, options, {quick_local_search{}});
        REQUIRE(first);
        check_valid(p, *first);
        auto like = p;
        like.costs[stage{0}].forward += duration{given.grid};
        for (auto& limit : like.memory_limit)
            limit = limit + memory_size{0.25 * static_cast<double>(random.below(3))};
        for (auto& list : like.storage) {
            if (list.size() > 1 && random.chance(30)) list.pop_back();
            for (auto& o : list)
                if (o.recomputes() && random.chance(50)) o.recompute += duration{given.grid};
        }
        if (!validate(like).empty()) continue;
        const auto warm = plan(like, options, {quick_local_search{}});
        REQUIRE(warm);
        check_valid(like, *warm);
        near += warm->cached == cache_use::near ? 1 : 0;
        const auto best = oracle::exhaustive_optimum(like, given.grid, 4'000);
        if (best.objective && best.proven) CHECK(warm->bound.value() <= *best.objective * (1.0 + 1e-6));
    }
    CHECK(near > 0);
}

TEST_CASE("a damaged entry with storage options is reported, and replaced") {
    const temporary_folder folder;
    const auto p = stored_problem();
    std::vector<std::string> warnings;
    auto options = without_builders(folder.path().string());
    options.warn = [&](std::string_view w) { warnings.emplace_back(w); };
    const auto first = plan(p, options, {quick_local_search{}});
    REQUIRE(first);
    REQUIRE(folder.files().size() == 1);
    const auto file = folder.files().front();
    auto text = temporary_folder::read(file);
    const auto option = text.rfind(':');
    REQUIRE(option != std::string::npos);
    text[option + 1] = '9';
    temporary_folder::write(file, text);
    const auto second = plan(p, options, {quick_local_search{}});
    REQUIRE(second);
    CHECK(second->cached == cache_use::none);
    CHECK(second->schedule.operations == first->schedule.operations);
    REQUIRE(warnings.size() == 1);
    CHECK(warnings.front().find("is damaged") != std::string::npos);
    CHECK(plan(p, options, {quick_local_search{}})->cached == cache_use::exact);
    CHECK(warnings.size() == 1);
}
