#include "optpipe/planner/modulo/modulo_search.hpp"

#include "optpipe/schedule/builders/one_forward_one_backward.hpp"
#include "optpipe/schedule/time/evaluate.hpp"
#include "optpipe/schedule/time/validate.hpp"
#include "optpipe/testing/random_problem.hpp"
#include "oracle/random_cases.hpp"
#include "oracle/reference_checker.hpp"

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <stop_token>

using namespace optpipe;

namespace {

problem linear_problem(std::size_t ranks, std::size_t microbatches, double stashes, double transfer = 0.0) {
    stage_costs each{duration{18.5}, duration{18.1}, duration{9.3}, memory_size{1.0}, memory_size{0.5}, {}};
    if (transfer > 0.0) each.transfer = transfer_times{duration{transfer}, duration{transfer}};
    problem p{to_any_graph(graph<dynamic, dynamic>{ranks, microbatches}), per_stage<stage_costs>(ranks, each)};
    p.p2p = hop_times<>{duration{0.6}};
    for (auto& limit : p.memory_limit)
        limit = memory_size{stashes};
    return p;
}

} // namespace

TEST_CASE("what it offers is valid, never worse than what was there, and the same with the same seed") {
    std::size_t found = 0;
    for (std::uint64_t seed = 1; seed <= oracle::random_cases(40); ++seed) {
        CAPTURE(seed);
        random_numbers random{seed};
        const auto p =
            testing::make_random_problem(random, {.ranks = 4, .stages = 6, .microbatches = 8, .cells = 24}).problem;
        const auto run = [&] {
            search_state state{p};
            modulo_search(state, {.seed = seed, .effort = 20'000});
            return state.incumbent();
        };
        const auto one = run();
        const auto two = run();
        REQUIRE((one == nullptr) == (two == nullptr));
        if (!one) continue;
        ++found;
        CHECK(one->operations == two->operations);
        const auto verdict = oracle::judge(p, *one);
        CHECK_MESSAGE(verdict.valid(), verdict.text());

        search_state state{p};
        state.offer(*one, "before");
        const auto before = state.objective();
        modulo_search(state, {.seed = seed + 1, .effort = 20'000});
        CHECK(state.objective() <= before);
    }
    CHECK(found >= oracle::random_cases(20));
}

TEST_CASE("many microbatches are planned on a reduced problem and unrolled") {
    for (const double transfer : {0.0, 15.0}) {
        CAPTURE(transfer);
        const auto p = linear_problem(4, 200, transfer > 0.0 ? 3.5 : 4.0, transfer);
        search_state state{p};
        std::size_t improved = 0;
        modulo_search(state, {.seed = 1, .effort = 60'000, .improve = [&](search_state& reduced) {
                                  ++improved;
                                  CHECK(reduced.problem().graph.microbatches() < 40);
                                  CHECK(reduced.incumbent() != nullptr);
                              }});
        CHECK(improved == 1);
        REQUIRE(state.incumbent() != nullptr);
        CHECK(is_valid(p, *state.incumbent()));
        // Within three per cent of the load: no bubble in the middle.
        CHECK(state.objective().value() <= 1.03 * p.load(rank{0}).value());
    }
}

TEST_CASE("slots of a period are stored in different ways where memory is short of one stash each") {
    // 1F1B needs four stashes on the first rank.
    auto p = linear_problem(4, 100, 3.2);
    for (const stage s : p.graph.all_stages()) {
        p.storage[s].push_back({.name = "again", .held = memory_size{0.4}, .recompute = duration{12.0}});
        p.storage[s].push_back({.name = "inside", .held = memory_size{0.4}, .backward_extra = duration{12.0}});
    }
    const auto objective_with = [&](bool kept, bool again) {
        auto q = p;
        for (const stage s : p.graph.all_stages()) {
            q.storage[s].clear();
            for (const auto& option : p.storage[s])
                if (option.extra_work() > duration{} ? again : kept) q.storage[s].push_back(option);
        }
        search_state state{q};
        modulo_search(state, {.seed = 1, .effort = 200'000});
        REQUIRE(state.incumbent() != nullptr);
        const auto verdict = oracle::judge(q, *state.incumbent());
        CHECK_MESSAGE(verdict.valid(), verdict.text());
        return state.objective();
    };
    const auto either = objective_with(true, true);
    CHECK(either < objective_with(true, false));
    CHECK(either < objective_with(false, true));
}

TEST_CASE("a schedule of the reduced problem becomes one of the complete problem") {
    const auto p = linear_problem(4, 200, 4.0);
    search_state state{p};
    detail::steady_state run{state};
    REQUIRE(run.is_reduced());
    run.unroll_to_all(*build_schedule(run.reduced(), one_forward_one_backward));
    CHECK(state.objective().value() ==
          doctest::Approx(objective_of(p, *build_schedule(p, one_forward_one_backward)).value()));
}

TEST_CASE("a search that is done stays unchanged") {
    const auto p = linear_problem(3, 8, 3.0);
    std::stop_source source;
    source.request_stop();
    search_state state{p, {.stop = source.get_token()}};
    modulo_search(state);
    CHECK(state.incumbent() == nullptr);
}

TEST_CASE("schedules far behind the incumbent aren't improved") {
    const auto p = linear_problem(4, 200, 4.0);
    const auto improves = [&](double slower) {
        search_state state{p};
        modulo_search(state, {.effort = 60'000});
        detail::steady_state run{state};
        periodic_pattern pattern;
        detail::period_search search{
            run.reduced(), 1, 60'000, [&](const periodic_pattern& found) { pattern = found; }, {}};
        search.run();
        pattern.period = slower * pattern.period;
        for (auto& slots : pattern.stages)
            for (auto& at : slots)
                for (auto* time : {&at.forward, &at.gradient, &at.weight})
                    *time = slower * *time;
        run.offer(pattern);
        bool improved = false;
        run.finish([&](search_state&) { improved = true; });
        return improved;
    };
    CHECK(improves(1.0));
    CHECK_FALSE(improves(1.2));
}
