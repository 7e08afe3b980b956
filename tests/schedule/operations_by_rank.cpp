#include "optpipe/program/lower.hpp"
#include "optpipe/schedule.hpp"
#include "oracle/random_problem.hpp"
#include "oracle/random_schedule.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
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

/// The level of a rank's memory, and what it may at most be.
struct memory_use {
    memory_size level{};
    memory_size most{};
    void add(memory_size acquired) {
        level += acquired;
        most = std::max(most, level);
    }
};

/// Runs the lists as a synchronous loop does, and returns the largest memory use of each rank; empty if it gets stuck.
std::optional<per_rank<memory_use>> run_synchronously(const problem& p, const schedule& s) {
    const auto lists = operations_by_rank(s);
    const operation_numbering<any_graph> number{p.graph};
    std::vector<bool> ended(number.size(), false);
    const auto has_ended = [&](const operation& op) {
        return ended[number(op)] ||
               (op.kind == operation_kind::backward_input && ended[number(backward(op.stage, op.microbatch))]);
    };
    per_rank<memory_use> used(p.graph.ranks());
    per_rank<std::size_t> next(p.graph.ranks());
    std::size_t left = s.operations.size();
    for (bool goes_on = true; goes_on;) {
        goes_on = false;
        for (const rank r : lists.indices())
            for (; next[r] < lists[r].size(); ++next[r], --left, goes_on = true) {
                const auto& op = lists[r][next[r]].op;
                bool ready = true;
                for_each_dependency(p, op, stash_way_of(p, op),
                                    [&](const operation& before, duration) { ready = ready && has_ended(before); });
                if (!ready) break;
                const auto effect = memory_effect_of(p, op);
                used[r].add(effect.acquired_at_start);
                used[r].level -= effect.released_at_end;
                ended[number(op)] = true;
            }
    }
    if (left > 0) return std::nullopt;
    return used;
}

TEST_CASE("a synchronous loop never gets stuck, and stays within the plan's memory") {
    std::size_t transfers = 0;
    for (std::uint64_t seed = 1; seed <= 300; ++seed) {
        CAPTURE(seed);
        oracle::random_numbers random{seed};
        const auto given = oracle::make_random_problem(
            random, {.ranks = 4, .stages = 8, .microbatches = 6, .cells = 20, .storage_percent = 50});
        const auto s = oracle::random_schedule(random, given);
        const auto planned = measure(given.problem, s);
        transfers += planned.offloads;
        const auto used = run_synchronously(given.problem, s);
        REQUIRE(used);
        for (const rank r : used->indices())
            CHECK((*used)[r].most <= planned.peak_memory[r] + tolerance{}.at(given.problem.memory_scale()));
    }
    CHECK(transfers > 300);
}

} // namespace
