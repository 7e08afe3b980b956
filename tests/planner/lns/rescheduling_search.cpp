#include "optpipe/planner/lns/rescheduling_search.hpp"

#include "optpipe/planner/lns/rescheduling.hpp"
#include "optpipe/schedule/construct/uniform_storage.hpp"
#include "optpipe/schedule/construct/within_memory.hpp"
#include "optpipe/testing/random_problem.hpp"
#include "oracle/reference_checker.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

using namespace optpipe;

namespace {

problem two_ranks(std::size_t microbatches) {
    const stage_costs each{duration{1.0}, duration{1.0}, duration{1.0}, memory_size{1.0}, memory_size{1.0}, {}};
    problem p{to_any_graph(graph<dynamic, dynamic>{2, microbatches}), per_stage<stage_costs>(2, each)};
    for (auto& limit : p.memory_limit)
        limit = memory_size{3.0};
    return p;
}

/// One microbatch after the other.
schedule serial(const problem& p) { return *time_order(p, one_at_a_time(p)); }

std::vector<std::string> lane(const problem& p, const order& o, rank r) {
    std::vector<std::string> own;
    for (const auto& op : o.operations)
        if (p.rank_of(op.stage) == r) own.push_back(to_string(op));
    return own;
}

} // namespace

TEST_CASE("from the start of the step on, list scheduling takes the longest tail first, and W where a rank waits") {
    const auto p = two_ranks(2);
    random_numbers random{1};
    detail::list_rescheduler end{p, serial(p), false};
    // When 1F1 has a tail of 4, 1I0 has one of 3; then 0I0 starts at 4.
    CHECK(end.run({}, random) == duration{8.0});
    CHECK(lane(p, end.made(), rank{0}) == std::vector<std::string>{"0F0", "0F1", "0I0", "0I1", "0W0", "0W1"});
    CHECK(lane(p, end.made(), rank{1}) == std::vector<std::string>{"1F0", "1F1", "1I0", "1I1", "1W0", "1W1"});
}

TEST_CASE("what is kept stays, at either end") {
    const auto p = two_ranks(3);
    const auto given = serial(p);
    const auto kept = duration{0.5 * objective_of(p, given).value()};
    for (const bool beginning : {false, true}) {
        CAPTURE(beginning);
        random_numbers random{1};
        detail::list_rescheduler some{p, given, beginning};
        REQUIRE(!some.run({kept}, random).is_unlimited());
        const auto made = some.made();
        for (const rank r : p.graph.all_ranks()) {
            const auto now = lane(p, made, r);
            const auto was = lane(p, order_of(given), r);
            const auto half = static_cast<std::ptrdiff_t>(was.size() / 2);
            if (beginning)
                CHECK(std::equal(was.end() - half, was.end(), now.end() - half));
            else
                CHECK(std::equal(was.begin(), was.begin() + half, now.begin()));
        }
        CHECK(oracle::judge(p, *time_order(p, made)).valid());
    }
}

TEST_CASE("a recomputation long before its gradient stays where it is kept") {
    auto p = two_ranks(2);
    for (const stage s : p.graph.all_stages())
        p.storage[s] = {{.name = "again", .held = memory_size{0.5}, .recompute = duration{1.0}}};
    auto given = one_at_a_time(p);
    const auto again = recompute_of(stage{0}, microbatch{0});
    std::erase(given.operations, again);
    given.operations.insert(given.operations.begin() + 1, again);
    const auto timed = *time_order(p, given);
    random_numbers random{1};
    detail::list_rescheduler end{p, timed, false};
    // Keeps 0F0 and 0RECOMPUTE0.
    REQUIRE(!end.run({duration{1.5}}, random).is_unlimited());
    const auto made = time_order(p, end.made());
    REQUIRE(made);
    CHECK(oracle::judge(p, *made).valid());
    CHECK(objective_of(p, *made) < objective_of(p, timed));
    CHECK(lane(p, end.made(), rank{0}).at(1) == "0RECOMPUTE0");
}

TEST_CASE("what it offers is valid and better, with every way to store a stash") {
    std::size_t better = 0;
    for (std::uint64_t seed = 1; seed <= 60; ++seed) {
        CAPTURE(seed);
        random_numbers random{seed};
        const testing::problem_ranges ranges{.ranks = 4,
                                             .stages = 8,
                                             .microbatches = 8,
                                             .cells = 40,
                                             .offloading_percent = seed % 2 == 0 ? 60U : 0U,
                                             .storage_percent = 60};
        const auto p = testing::make_random_problem(random, ranges).problem;
        if (!fits_one_at_a_time(p)) continue;
        search_state state{p};
        const auto before = state.offer(one_at_a_time(p), "start");
        rescheduling_search(state, {.seed = seed, .trials = 60});
        CHECK(state.objective() <= before);
        CHECK(oracle::judge(p, *state.incumbent()).valid());
        better += state.objective() < before ? 1 : 0;
    }
    CHECK(better > 15);
}
