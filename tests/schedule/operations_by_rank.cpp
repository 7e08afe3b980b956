#include "optpipe/program/lower.hpp"
#include "optpipe/schedule.hpp"
#include "oracle/random_problem.hpp"
#include "oracle/random_schedule.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <type_traits>
#include <vector>

namespace {

using namespace optpipe;

template <class V, class I> concept subscriptable = requires(V v, I i) { v[i]; };
using programs = std::remove_cvref_t<decltype(*lower(problem{}, schedule{}))>;
static_assert(subscriptable<programs, rank> && !subscriptable<programs, std::size_t> &&
              !subscriptable<programs, stage>);

// Also in constant expressions.
constexpr auto unit = make_problem(graph<2, 2>{}, unit_memory{});
constexpr auto timed = *build_schedule(unit, one_forward_one_backward);
static_assert(operations_by_rank(timed)[rank{1}].size() == 4);
static_assert(operations_by_rank(timed)[rank{1}].front().op == forward(stage{1}, microbatch{0}));

TEST_CASE("each rank's operations, in the order in which they start") {
    const auto lists = operations_by_rank(timed);
    REQUIRE(lists.size() == 2);
    std::string text;
    for (const rank r : lists.indices())
        for (const auto& each : lists[r])
            text += to_string(each.op) + " ";
    CHECK(text == "0F0 0F1 0B0 0B1 1F0 1B0 1F1 1B1 ");
}

TEST_CASE("whatever the order of the schedule's list, nothing is lost") {
    for (std::uint64_t seed = 1; seed <= 200; ++seed) {
        CAPTURE(seed);
        oracle::random_numbers random{seed};
        const auto given =
            oracle::make_random_problem(random, {.ranks = 4, .stages = 8, .microbatches = 6, .cells = 20});
        auto s = oracle::random_schedule(random, given);
        for (std::size_t i = s.operations.size(); i > 1; --i)
            std::swap(s.operations[i - 1], s.operations[random.below(i)]);
        const auto lists = operations_by_rank(s);
        std::size_t count = 0;
        for (const rank r : lists.indices()) {
            count += lists[r].size();
            CHECK(std::is_sorted(lists[r].begin(), lists[r].end(), starts_before));
            for (const auto& each : lists[r])
                CHECK(given.problem.rank_of(each.op.stage) == r);
        }
        CHECK(count == s.operations.size());
    }
}

} // namespace
