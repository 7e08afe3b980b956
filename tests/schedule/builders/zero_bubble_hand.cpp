#include "optpipe/pipeline/make_problem.hpp"
#include "optpipe/schedule/builders/zero_bubble_h1.hpp"
#include "optpipe/schedule/builders/zero_bubble_h2.hpp"
#include "optpipe/schedule/time/evaluate.hpp"
#include "optpipe/schedule/time/measure.hpp"
#include "optpipe/schedule/time/simulate.hpp"
#include "optpipe/schedule/time/validate.hpp"
#include "oracle/golden.hpp"
#include "oracle/random_cases.hpp"
#include "oracle/random_problem.hpp"
#include "oracle/reference_checker.hpp"
#include "oracle/spelled.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace {

using namespace optpipe;
using namespace optpipe::literals;
using oracle::largest_peak;
using oracle::linear_problem;
using oracle::profile;
using oracle::profile_of;
using oracle::rows_of;

static_assert(zero_bubble_h1.name == "zb-h1" && zero_bubble_h2.name == "zb-h2");
static_assert(peak_stash(zero_bubble_h1(graph<4, 8>{})) == 4);
static_assert(peak_stash(zero_bubble_h2(graph<4, 8>{})) == 7);
static_assert(peak_stash(zero_bubble_h2(graph<4, 2>{})) == 2);
constexpr auto unit = make_problem(graph<4, 8>{}, unit_memory{});
constexpr auto timed_h1 = *build_schedule(unit, zero_bubble_h1);
constexpr auto timed_h2 = *build_schedule(unit, zero_bubble_h2);
static_assert(is_valid(unit, timed_h1) && is_valid(unit, timed_h2));
static_assert(measure(unit, timed_h1).makespan == 27_ms);
static_assert(measure(unit, timed_h2).makespan == 27_ms);
static_assert(measure(unit, timed_h2).span == 27_ms - 3_ms);
static_assert(measure(unit, timed_h1).peak_memory[rank{0}] == 4_gb);
static_assert(measure(unit, timed_h1).peak_memory[rank{3}] == 1_gb + 3 * 0.5_gb);
static_assert(measure(unit, timed_h2).peak_memory[rank{0}] == 7_gb);
static_assert(measure(unit, timed_h2).peak_memory[rank{3}] == 1_gb + 6 * 0.5_gb);

template <class Builder> measures measured(problem p, const Builder& build, objective_kind objective) {
    p.objective = objective;
    const auto timed = build_schedule(p, build);
    REQUIRE_MESSAGE(timed.has_value(), describe(timed.why()));
    return measure(p, *timed);
}

template <class Builder> void check_refusals(const Builder& build) {
    const auto v = to_problem(make_problem(graph<2, 3, placement::v>{}, unit_memory{}));
    REQUIRE_FALSE(build(v).has_value());
    CHECK(build(v).why().reason == refusal_reason::does_not_apply);
    CHECK(build(v).why().sentence == "this Zero Bubble schedule is for one stage per rank");
    auto whole = to_problem(make_problem(graph<2, 3>{}, unit_memory{}));
    whole.split_backward = false;
    REQUIRE_FALSE(build(whole).has_value());
    CHECK(build(whole).why().reason == refusal_reason::does_not_apply);
    CHECK(build(whole).why().sentence == "Zero Bubble is for backwards that may be split into I and W");
}

/// The memory of `whole` whole stashes and `for_weights` weight stashes on a rank.
memory_size stashes(const problem& p, std::size_t whole, std::size_t for_weights) {
    const auto& c = p.costs[stage{0}];
    return static_cast<double>(whole) * c.activation + static_cast<double>(for_weights) * c.weight_stash;
}

std::string text_of(const std::vector<std::string>& row) {
    std::string all;
    for (const auto& field : row)
        all += field + " ";
    return all;
}

} // namespace

TEST_CASE("alternating forwards and input gradients, and postponed weight gradients") {
    const auto p = to_problem(make_problem(graph<2, 3>{}, unit_memory{}));
    CHECK(oracle::spell(*simulate(p, *zero_bubble_h1(p))) ==
          "0F0@0 0F1@1 1F0@1 1I0@2 0I0@3 1F1@3 0W0@4 1I1@4 0F2@5 1W0@5 0I1@6 1F2@6 0W1@7 1I2@7 0I2@8 1W1@8 0W2@9 "
          "1W2@9");
}

TEST_CASE("what they aren't made for") {
    check_refusals(zero_bubble_h1);
    check_refusals(zero_bubble_h2);
}

TEST_CASE("bubbles and peaks of the paper, for every number of ranks") {
    constexpr profile profiles[] = {
        {1, 1, 1, 0}, {4, 4, 2, 0}, {18.522, 18.086, 9.337, 0},    {4, 5, 3, 0}, {5, 3, 2, 0},
        {3, 5, 3, 0}, {5, 3, 3, 0}, {18.522, 18.086, 9.337, 0.601}};
    for (std::size_t ranks = 2; ranks <= 16; ++ranks)
        for (const auto& c : profiles)
            for (const std::size_t count : {ranks, ranks + 1, 2 * ranks - 1, 3 * ranks + 2}) {
                CAPTURE(ranks);
                CAPTURE(count);
                CAPTURE(c.forward);
                const auto p = linear_problem(ranks, count, c, 1.0, 0.25);
                const double work = static_cast<double>(count) * (c.forward + c.backward_input + c.backward_weight);
                const double before = static_cast<double>(ranks - 1);
                const auto h1 = measured(p, zero_bubble_h1, objective_kind::makespan);
                if (c.p2p == 0.0)
                    CHECK(h1.makespan.value() ==
                          doctest::Approx(work + before * (c.forward + c.backward_input - c.backward_weight)));
                for (const rank r : p.graph.all_ranks())
                    CHECK(h1.peak_memory[r] == stashes(p, ranks - r.position(), r.position()));
                if (count < 2 * ranks - 1) continue;
                const auto h2 = measured(p, zero_bubble_h2, objective_kind::span);
                CHECK(h2.span.value() == doctest::Approx(work + before * (c.forward + c.backward_input + 2 * c.p2p -
                                                                          2 * c.backward_weight)));
                for (const rank r : p.graph.all_ranks())
                    CHECK(h2.peak_memory[r] <= stashes(p, 2 * (ranks - r.position()) - 1, 2 * r.position()));
                CHECK(h2.peak_memory[rank{0}] == stashes(p, 2 * ranks - 1, 0));
            }
}

TEST_CASE("no worse than as measured with the authors' scheduler, in time and memory") {
    std::size_t compared = 0;
    std::string better;
    for (const auto& row : rows_of("golden/fixed_patterns.csv")) {
        if (row[0] == "interleaved") continue;
        INFO(text_of(row));
        const auto p = linear_problem(std::stoul(row[2]), std::stoul(row[3]), profile_of(row[4]));
        for (const auto objective : {objective_kind::makespan, objective_kind::span}) {
            const auto m =
                row[0] == "zb-h1" ? measured(p, zero_bubble_h1, objective) : measured(p, zero_bubble_h2, objective);
            const double theirs = std::stod(row[objective == objective_kind::makespan ? 5 : 6]);
            const double ours = m.objective.value();
            CHECK(ours <= theirs * (1.0 + 1e-6));
            CHECK(largest_peak(m) <= std::stod(row[7]) * (1.0 + 1e-9));
            if (ours < theirs * (1.0 - 1e-6))
                better += "\n  " + text_of(row) + (objective == objective_kind::span ? "span: " : "makespan: ") +
                          std::to_string(ours);
            ++compared;
        }
    }
    CHECK(compared == 96);
    MESSAGE("better than theirs:" << better);
}

TEST_CASE("the bubble rates of the paper's tables") {
    std::size_t compared = 0;
    for (const auto& row : rows_of("golden/zero_bubble_tables.csv")) {
        INFO(text_of(row));
        const auto number = [&](std::size_t i) { return std::stod(row[i]); };
        const auto p = linear_problem(std::stoul(row[1]), std::stoul(row[2]),
                                      {number(4), number(5), number(6), number(7)}, number(8), number(9));
        CHECK(measured(p, zero_bubble_h1, objective_kind::span).bubble_rate <= number(12) + 1e-4);
        CHECK(measured(p, zero_bubble_h2, objective_kind::span).bubble_rate <= number(13) + 1e-4);
        ++compared;
    }
    CHECK(compared == 21);
}

TEST_CASE("valid for whatever costs, communication and numbers of microbatches") {
    constexpr std::uint64_t seed = 91;
    std::uint64_t applied = 0;
    for (std::uint64_t i = 0; i < oracle::random_cases(600); ++i) {
        CAPTURE(seed);
        CAPTURE(i);
        oracle::random_numbers random{seed * 1'000'003 + i};
        auto p =
            oracle::make_random_problem(random, {.ranks = 16, .stages = 16, .microbatches = 64, .cells = 1024}).problem;
        for (auto& limit : p.memory_limit)
            limit = memory_size::unlimited();
        const bool applies = one_stage_per_rank(p.graph) && p.split_backward;
        CHECK(zero_bubble_h1(p).has_value() == applies);
        CHECK(zero_bubble_h2(p).has_value() == applies);
        if (!applies) continue;
        ++applied;
        for (const auto& built : {*zero_bubble_h1(p), *zero_bubble_h2(p)}) {
            const auto timed = time_order(p, built);
            REQUIRE_MESSAGE(timed.has_value(), describe(timed.why()));
            CHECK(validate(p, *timed).empty());
            CHECK(oracle::judge(p, *timed).text() == "");
        }
    }
    CHECK(applied > oracle::random_cases(100));
}
