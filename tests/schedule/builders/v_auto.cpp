#include "optpipe/schedule/builders/v_auto.hpp"

#include "optpipe/pipeline/make_problem.hpp"
#include "optpipe/schedule/time/evaluate.hpp"
#include "optpipe/schedule/time/measure.hpp"
#include "optpipe/schedule/time/validate.hpp"
#include "oracle/golden.hpp"
#include "oracle/random_cases.hpp"
#include "oracle/reference_checker.hpp"
#include "oracle/v_problem.hpp"

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <string>

namespace {

using namespace optpipe;
using oracle::largest_peak;
using oracle::profile_of;
using oracle::rows_of;

static_assert(v_auto.name == "v-auto");

/// Checks only a part of the rows under sanitizers, where a search takes too long.
template <class Check> std::size_t for_some_rows(const std::string& name, Check check) {
    const auto stride = oracle::stride(6);
    std::size_t row = 0;
    std::size_t checked = 0;
    for (const auto& fields : rows_of(name))
        if (row++ % stride == 0) checked += check(fields) ? stride : 0;
    return checked;
}

/// The objective with little effort if that is enough to meet `theirs`, otherwise with the builder's default effort.
double objective_against(const problem& p, double theirs) {
    double found = 0.0;
    for (const std::size_t effort : {std::size_t{60'000}, std::size_t{1'000'000}, v_auto.effort}) {
        auto build = v_auto;
        build.effort = effort;
        const auto timed = build_schedule(p, build);
        REQUIRE_MESSAGE(timed.has_value(), describe(timed.why()));
        const auto m = measure(p, *timed);
        for (const rank r : p.graph.all_ranks())
            CHECK(m.peak_memory[r].value() <= p.memory_limit[r].value() + 1e-9);
        found = m.objective.value();
        if (found <= theirs * (1.0 + 1e-6)) break;
    }
    return found;
}

} // namespace

TEST_CASE("what it isn't made for, and what is too small") {
    CHECK(v_auto(to_problem(make_problem(graph<2, 3>{}, unit_memory{}))).why().reason ==
          refusal_reason::does_not_apply);
    const auto refused = v_auto(oracle::unit_v_problem(8, 24, 2.0));
    REQUIRE_FALSE(refused.has_value());
    CHECK(refused.why().reason == refusal_reason::over_memory);
    CHECK(refused.why().needed > memory_size{2.0});
    CHECK(refused.why().needed <= memory_size{4.0});
    CHECK(refused.why().limit == memory_size{2.0});
}

TEST_CASE("in less memory than V-Min's a step takes longer, but no more than in proportion") {
    const auto value_with = [](double stashes) {
        const auto p = oracle::unit_v_problem(8, 24, stashes);
        return objective_of(p, *time_order(p, *v_auto(p)));
    };
    constexpr double least_of_v_min = 8.0;
    const auto first = value_with(least_of_v_min);
    auto last = first;
    for (const double stashes : {7.0, 6.0, 5.0, 4.0}) {
        CAPTURE(stashes);
        const auto value = value_with(stashes);
        CHECK(value > last);
        CHECK(value < least_of_v_min / stashes * 1.05 * first);
        last = value;
    }
}

TEST_CASE("the Pareto front of unit passes") {
    const auto compared = for_some_rows("golden/v_pareto.csv", [](const auto& row) {
        CAPTURE(row[0] + "x" + row[1] + ", " + row[2] + " stashes");
        const auto ranks = std::stoul(row[0]);
        const auto count = std::stoul(row[1]);
        const auto p = oracle::unit_v_problem(ranks, count, std::stod(row[2]));
        const double work = 6.0 * static_cast<double>(count);
        const double idle = objective_against(p, work + std::stod(row[3])) - work;
        CHECK(idle <= std::stod(row[3]) + 1e-9);
        CHECK(idle >= std::stod(row[4]) - 1e-9);
        return true;
    });
    CHECK(compared >= 49);
}

TEST_CASE("a published optimum that takes the holes of the cool-down to be filled") {
    auto p = oracle::unit_v_problem(6, 18, 9.0);
    p.objective = objective_kind::makespan;
    CHECK(objective_against(p, 116.0) == doctest::Approx(116.0));
}

TEST_CASE("never below what an exhaustive search found") {
    for (const auto& row : oracle::some_rows_of("golden/v_exact.csv", 4)) {
        CAPTURE(row[0] + "x" + row[1] + ", " + row[2] + " stashes");
        const auto p = oracle::unit_v_problem(std::stoul(row[0]), std::stoul(row[1]), std::stod(row[2]));
        const auto built = v_auto(p);
        if (!built) {
            CHECK(built.why().needed > built.why().limit);
            continue;
        }
        const double work = 6.0 * std::stod(row[1]);
        CHECK(objective_of(p, *time_order(p, *built)).value() - work >= std::stod(row[3]) - 1e-9);
    }
}

TEST_CASE("no worse than as measured with the authors' scheduler, within the same limit") {
    const auto compared = for_some_rows("golden/v_schedules.csv", [](const auto& row) {
        if (row[0] != "v-auto") return false;
        CAPTURE(row[3] + "x" + row[4] + " " + row[5] + ", limit " + row[1]);
        const auto c = profile_of(row[5]);
        auto p = oracle::v_problem(std::stoul(row[3]), std::stoul(row[4]),
                                   {c.forward / 2, c.backward_input / 2, c.backward_weight / 2, c.p2p}, 0.5, 0.5);
        for (auto& limit : p.memory_limit)
            limit = memory_size{std::stod(row[1])};
        p.objective = objective_kind::span;
        CHECK(objective_against(p, std::stod(row[7])) <= std::stod(row[7]) * (1.0 + 1e-6));
        return true;
    });
    CHECK(compared >= 48);
}

TEST_CASE("any costs, limits, ranks and microbatches") {
    constexpr std::uint64_t seed = 65;
    auto build = v_auto;
    build.effort = 10'000;
    std::uint64_t fitted = 0;
    std::uint64_t refused = 0;
    for (std::uint64_t i = 0; i < oracle::random_cases(100); ++i) {
        CAPTURE(seed);
        CAPTURE(i);
        random_numbers random{seed * 1'000'003 + i};
        const auto p = oracle::random_v_problem(random);
        const auto built = build(p);
        if (!built) {
            CHECK(built.why().reason == refusal_reason::over_memory);
            CHECK(built.why().needed > built.why().limit);
            ++refused;
            continue;
        }
        ++fitted;
        const auto timed = time_order(p, *built);
        REQUIRE(timed.has_value());
        const auto found = validate(p, *timed);
        CHECK_MESSAGE(found.empty(), found.front().text());
        if (p.graph.cells() <= 256) CHECK(oracle::judge(p, *timed).text() == "");
    }
    CHECK(fitted > oracle::random_cases(40));
    CHECK(refused > oracle::random_cases(5));
}
