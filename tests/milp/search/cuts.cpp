#include "oracle/milp_random.hpp"
#include <optpipe/milp/check.hpp>
#include <optpipe/milp/search/control.hpp>
#include <optpipe/milp/search/cuts/separation.hpp>

#include <doctest/doctest.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

using namespace optpipe;
using namespace optpipe::milp;
using namespace optpipe::milp::search;

namespace {

std::vector<std::vector<double>> feasible_points(const model& m) {
    std::vector<std::vector<double>> found;
    std::vector<double> point;
    for (const variable x : m.all_variables())
        point.push_back(m.lower(x));
    while (true) {
        if (check(m, point).empty()) found.push_back(point);
        std::size_t j = 0;
        for (; j < point.size(); ++j) {
            if (++point[j] <= m.upper(variable{j})) break;
            point[j] = m.lower(variable{j});
        }
        if (j == point.size()) return found;
    }
}

/// Each separator once, at the point of the relaxation.
template <class Separate> std::size_t try_separator(std::uint64_t models, Separate separate) {
    std::size_t cuts = 0;
    for (std::uint64_t seed = 1; seed <= models; ++seed) {
        CAPTURE(seed);
        const auto m = oracle::random_model(seed, {.integers = 7, .reals = 0, .rows = 5});
        auto p = problem_of(m);
        control limits{solve_options{}};
        relaxation lp{p, seed};
        if (lp.solve(limits, infinity) != lp_status::optimal) continue;
        cut_pool pool;
        separate(p, lp, pool);
        const std::vector<double> point(lp.point().begin(), lp.point().end());
        for (const auto& c : pool.take(point, 1000)) {
            ++cuts;
            CHECK(c.violation(point) > 0.0);
            for (const auto& feasible : feasible_points(m))
                CHECK(c.violation(feasible) <= 1e-6);
        }
    }
    return cuts;
}

} // namespace

TEST_CASE("cuts take away the relaxation's point and no whole one") {
    constexpr std::uint64_t models = 400;
    SUBCASE("Gomory") {
        CHECK(try_separator(models, [](const problem& p, relaxation& lp, cut_pool& pool) {
                  mixed_integer_rounding rounding{p, lp.cuts(), p.lower, p.upper};
                  separate_gomory(p, lp, rounding, pool);
              }) > 100);
    }
    SUBCASE("rounding of sums of rows") {
        CHECK(try_separator(models, [](const problem& p, relaxation& lp, cut_pool& pool) {
                  mixed_integer_rounding rounding{p, lp.cuts(), p.lower, p.upper};
                  const std::vector<double> point(lp.point().begin(), lp.point().end());
                  aggregation{p}.separate(0, rounding, p.lower, p.upper, point, pool);
              }) > 50);
    }
    SUBCASE("covers") {
        CHECK(try_separator(models, [](const problem& p, relaxation& lp, cut_pool& pool) {
                  cover_separation{p, p.lower, p.upper}.separate(lp.point(), pool);
              }) > 10);
    }
    SUBCASE("cliques") {
        CHECK(try_separator(2 * models, [](const problem& p, relaxation& lp, cut_pool& pool) {
                  const clique_table table{p, p.lower, p.upper};
                  clique_separation{p, table}.separate(lp.point(), pool);
              }) > 0);
    }
}

TEST_CASE("bounds that a binary implies, as cuts") {
    model m;
    const auto flow = m.add_variable(0.0, 10.0);
    const auto open = m.add_binary();
    m.add_row(flow - 4.0 * open <= 0.0);
    const auto p = problem_of(m);
    propagator engine{p};
    REQUIRE(engine.propagate());
    implied_bounds implied;
    CHECK(implied.probe(engine, 1000));
    CHECK(implied.size() >= 1);
    cut_pool pool;
    implied.separate(std::vector{3.0, 0.5}, pool);
    const auto cuts = pool.take(std::vector{3.0, 0.5}, 10);
    REQUIRE(cuts.size() == 1);
    CHECK(cuts[0].violation(std::vector{4.0, 1.0}) == doctest::Approx(0.0));
    CHECK(cuts[0].violation(std::vector{0.0, 0.0}) == doctest::Approx(0.0));
    CHECK(cuts[0].violation(std::vector{1.0, 0.0}) > 0.0);
}

TEST_CASE("probing fixes what contradicts itself") {
    model m;
    const auto x = m.add_binary(), y = m.add_binary(), z = m.add_binary();
    m.add_row(x - y <= 0.0);
    m.add_row(x - z <= 0.0);
    m.add_row(y + z <= 1.0);
    const auto p = problem_of(m);
    propagator engine{p};
    REQUIRE(engine.propagate());
    implied_bounds implied;
    CHECK(implied.probe(engine, 1000));
    CHECK(engine.bounds().upper(x.position()) == 0.0);
}

TEST_CASE("the pool gives the best, none parallel to another, and forgets") {
    cut_pool pool;
    const auto add = [&](double a, double b, double limit) { pool.add({{{0, a}, {1, b}}, limit, 0.0, 0}); };
    add(1.0, 1.0, 1.0);
    add(1.0, 1.0, 1.5);   // weaker than the first
    add(1.0, 1.01, 1.05); // nearly parallel to it
    add(1.0, -1.0, -1.0);
    CHECK(pool.size() == 3);
    const std::vector point{0.9, 0.9};
    const auto best = pool.take(point, 5);
    REQUIRE(best.size() == 2);
    CHECK(best[0].efficacy >= best[1].efficacy);
    const std::vector nowhere{0.0, 0.0};
    for (int k = 0; k < 10; ++k)
        static_cast<void>(pool.take(nowhere, 0));
    CHECK(pool.size() <= 1);
}
