#include "formulation/model_checks.hpp"
#include "optpipe/formulation/formulate.hpp"
#include "oracle/exhaustive.hpp"
#include "oracle/random_cases.hpp"
#include "oracle/random_problem.hpp"

#include <doctest/doctest.h>

#include <cstdint>
#include <memory>
#include <utility>
#include <variant>

using namespace optpipe;
using namespace model_checks;
using formulation::formulate;
using formulation::overtaking;

namespace {

struct totals {
    int exact = 0;
    int offloaded = 0;
    int restricted = 0; ///< problems without an optimum without overtaking
    int below = 0;      ///< problems with a pooled optimum below the exact one
};

/// Compares the exact model with all schedules. Returns the model and the optimum, if that was found.
std::pair<std::shared_ptr<const formulation::formulated>, oracle::optimum>
compare_exact(const problem& p, double grid, std::uint64_t bits, totals& count) {
    const auto best = oracle::exhaustive_optimum(p, grid, 20'000);
    if (!best.proven || !best.objective) return {};
    formulation::options o;
    o.with = some_of(bits);
    if ((bits >> 8 & 1U) != 0) o.horizon = duration{*best.objective};
    const auto f = formulate(p, o);
    REQUIRE(f.has_value());
    REQUIRE((*f)->is_exact);
    check_witness(p, **f, best.schedule);
    const auto r = solved(**f);
    CHECK(std::holds_alternative<milp::optimal>(r.why));
    CHECK_MESSAGE(near(r.objective, *best.objective), r.objective << " instead of " << *best.objective);
    // By span, forwards of graphs that start late aren't always the latest that the orders allow.
    if (is_plain(p) || p.objective == objective_kind::makespan)
        check_solution(p, **f, r);
    else
        CHECK(schedule_of(**f, *r.incumbent).has_value());
    ++count.exact;
    return {*f, best};
}

void compare(const problem& p, double grid, std::uint64_t bits, totals& count) {
    const auto [exact, best] = compare_exact(p, grid, bits, count);
    if (!exact || !exact->operations->any_may_offload()) return;
    ++count.offloaded;

    formulation::options o;
    o.with = some_of(bits);
    o.overtaking = overtaking::forbidden;
    const auto in_order = formulate(p, o);
    REQUIRE(in_order.has_value());
    CHECK_FALSE((*in_order)->is_exact);
    const auto restricted = solved(**in_order);
    CHECK(std::holds_alternative<milp::optimal>(restricted.why));
    CHECK((restricted.objective > *best.objective || near(restricted.objective, *best.objective)));
    check_solution(p, **in_order, restricted);
    count.restricted += near(restricted.objective, *best.objective) ? 0 : 1;

    o.overtaking = overtaking::pooled;
    const auto pooled = formulate(p, o);
    REQUIRE(pooled.has_value());
    CHECK((*pooled)->is_pooled);
    check_witness(p, **pooled, best.schedule);
    const auto relaxed = solved(**pooled);
    CHECK(std::holds_alternative<milp::optimal>(relaxed.why));
    CHECK((relaxed.objective < *best.objective || near(relaxed.objective, *best.objective)));
    count.below += near(relaxed.objective, *best.objective) ? 0 : 1;
}

} // namespace

TEST_CASE("the optimum of the model is that of the problem, whatever strengthens it") {
    totals count;
    for (std::uint64_t seed = 1; seed <= oracle::random_cases(400); ++seed) {
        random_numbers random{seed};
        oracle::problem_ranges ranges;
        ranges.cells = 5;
        ranges.offloading_percent = 60;
        const auto made = oracle::make_random_problem(random, ranges);
        INFO("seed " << seed);
        compare(made.problem, made.grid, random.below(std::size_t{1} << 9), count);
    }
    MESSAGE(count.exact << " problems, with offloading in " << count.offloaded << "; the pooled optimum is lower in "
                        << count.below);
    CHECK(count.below <= count.offloaded / 5);
    CHECK(count.exact > static_cast<int>(oracle::random_cases(350)));
    CHECK(count.offloaded > static_cast<int>(oracle::random_cases(60)));
}

TEST_CASE("the optimum of the model of a graph is that of the problem: slices, groups and microbatches that differ") {
    totals count;
    for (std::uint64_t seed = 1; seed <= oracle::random_cases(300); ++seed) {
        random_numbers random{seed};
        oracle::problem_ranges ranges;
        ranges.cells = 5;
        ranges.offloading_percent = 30;
        ranges.storage_percent = seed % 3 == 0 ? 100 : 0;
        ranges.graph_percent = 100;
        const auto made = oracle::make_random_problem(random, ranges);
        if (is_plain(made.problem)) continue;
        INFO("seed " << seed);
        compare_exact(made.problem, made.grid, random.below(std::size_t{1} << 9), count);
    }
    MESSAGE(count.exact << " problems");
    CHECK(count.exact > static_cast<int>(oracle::random_cases(180)));
}

TEST_CASE("the model of a graph has no form without names of microbatches") {
    random_numbers random{1};
    oracle::problem_ranges ranges;
    ranges.graph_percent = 100;
    auto p = oracle::make_random_problem(random, ranges).problem;
    while (is_plain(p))
        p = oracle::make_random_problem(random, ranges).problem;
    formulation::options o;
    o.overtaking = overtaking::pooled;
    const auto f = formulate(p, o);
    REQUIRE_FALSE(f.has_value());
    CHECK(f.why().sentence == "for problems that aren't plain there is only the model that names microbatches");
}

TEST_CASE("microbatches that overtake each other: a stash is parked over the whole step") {
    totals count;
    for (const std::uint64_t seed : {292U, 645U}) {
        random_numbers random{seed};
        oracle::problem_ranges ranges;
        ranges.cells = 6;
        ranges.offloading_percent = 60;
        const auto made = oracle::make_random_problem(random, ranges);
        INFO("seed " << seed);
        compare(made.problem, made.grid, 0x7f, count);
    }
    CHECK(count.restricted == 2);
}

TEST_CASE("two engines, but a link that carries one transfer at a time, shared by all ranks") {
    totals count;
    int matters = 0;
    for (std::uint64_t seed = 1; seed <= oracle::random_cases(1500); ++seed) {
        random_numbers random{seed};
        oracle::problem_ranges ranges;
        ranges.cells = 4;
        ranges.offloading_percent = 100;
        ranges.span_percent = 0;
        auto made = oracle::make_random_problem(random, ranges);
        auto& p = made.problem;
        if (!formulation::operation_table{p}.any_may_offload()) continue;
        p.transfer = transfer_rules<>{p.graph.ranks()};
        p.transfer.engines = 2;
        const auto apart = oracle::exhaustive_optimum(p, made.grid, 20'000);
        p.transfer.duplex = duplex_kind::half;
        for (std::size_t r = 1; r < p.graph.ranks(); ++r)
            p.transfer.share_link(rank{0}, rank{r});
        const auto together = oracle::exhaustive_optimum(p, made.grid, 20'000);
        if (!apart.objective || !together.objective || near(*apart.objective, *together.objective)) continue;
        INFO("seed " << seed);
        compare(p, made.grid, random.below(std::size_t{1} << 9), count);
        ++matters;
    }
    MESSAGE(matters << " problems in which it matters");
    CHECK(matters >= static_cast<int>(oracle::random_cases(5)));
}

TEST_CASE("a link that carries one transfer at a time, whatever its direction") {
    totals count;
    // Seeds among 9000 in which an offload must wait for a reload, or the reverse.
    for (const std::uint64_t seed : {1287U, 2265U, 2347U}) {
        INFO("seed " << seed);
        random_numbers random{seed};
        oracle::problem_ranges ranges;
        ranges.cells = 6;
        ranges.offloading_percent = 100;
        ranges.span_percent = 0;
        auto made = oracle::make_random_problem(random, ranges);
        auto& p = made.problem;
        p.transfer = transfer_rules<>{p.graph.ranks()};
        p.transfer.engines = 2;
        for (std::size_t r = 1; r < p.graph.ranks(); ++r)
            p.transfer.share_link(rank{0}, rank{r});
        const auto full = oracle::exhaustive_optimum(p, made.grid, 20'000);
        p.transfer.duplex = duplex_kind::half;
        const auto half = oracle::exhaustive_optimum(p, made.grid, 20'000);
        REQUIRE((full.objective && half.objective && *full.objective < *half.objective));
        compare(p, made.grid, 0x7f, count);
    }
    CHECK(count.exact == 3);
}

TEST_CASE("a model whose orders take too long to find is refused") {
    random_numbers random{1};
    const auto p = oracle::make_random_problem(random, {}).problem;
    for (const int most : {0, 3}) {
        int asked = 0;
        formulation::options o;
        o.stop = [&] { return asked++ >= most; };
        const auto f = formulate(p, o);
        REQUIRE_FALSE(f.has_value());
        CHECK(f.why().sentence == "stopped before it had a schedule");
        CHECK(asked == most + 1);
    }
}

TEST_CASE("below the optimum there is nothing") {
    int empty = 0;
    for (std::uint64_t seed = 1; seed <= 60; ++seed) {
        random_numbers random{seed};
        oracle::problem_ranges ranges;
        ranges.cells = 4;
        ranges.offloading_percent = 60;
        const auto made = oracle::make_random_problem(random, ranges);
        const auto best = oracle::exhaustive_optimum(made.problem, made.grid, 20'000);
        if (!best.proven || !best.objective) continue;
        INFO("seed " << seed);
        formulation::options o;
        o.horizon = duration{*best.objective - 0.2 * made.grid};
        const auto f = formulate(made.problem, o);
        REQUIRE(f.has_value());
        const bool none = std::holds_alternative<milp::infeasible>(solved(**f).why);
        // The best span may be between two points of the grid.
        if (made.problem.objective == objective_kind::makespan) CHECK(none);
        empty += none ? 1 : 0;
    }
    CHECK(empty > 40);
}
