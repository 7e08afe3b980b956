#include "oracle/milp_random.hpp"
#include <optpipe/core/random.hpp>
#include <optpipe/milp/check.hpp>
#include <optpipe/milp/search/control.hpp>
#include <optpipe/milp/search/cuts/separation.hpp>

#include <doctest/doctest.h>

#include <algorithm>
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

/// Runs each separator once, at the point of the relaxation.
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

/// The largest violation of a cut by a point of the problem: over all values of the binaries, the best of the rest.
double worst_violation(problem p, const cut& c) {
    std::fill(p.cost.begin(), p.cost.end(), 0.0);
    for (const auto& e : c.entries)
        p.cost[e.column] = -e.coefficient;
    std::vector<std::size_t> binaries;
    for (std::size_t j = 0; j < p.columns(); ++j)
        if (p.is_binary(j)) binaries.push_back(j);
    control limits{solve_options{}};
    relaxation lp{p, 1};
    double worst = -infinity;
    for (std::size_t values = 0; values < std::size_t{1} << binaries.size(); ++values) {
        for (std::size_t k = 0; k < binaries.size(); ++k) {
            const double value = (values >> k & 1U) != 0 ? 1.0 : 0.0;
            lp.set_bounds(binaries[k], value, value);
        }
        if (lp.solve(limits, infinity) == lp_status::optimal) worst = std::max(worst, c.violation(lp.point()));
    }
    return worst;
}

/// Flow from node 0 through arcs that are open or closed, with numbers that aren't decimal fractions.
model nasty_network(std::uint64_t seed) {
    random_numbers random{seed};
    const auto share = [&] { return static_cast<double>(random.between(1, 1'000'000)) / 1'000'003.0; };
    constexpr std::size_t nodes = 4;
    const double scale = std::pow(10.0, static_cast<double>(random.between(0, 6)) - 3.0);
    model m;
    std::vector<std::vector<term>> balance(nodes);
    for (std::size_t arc = 0; arc < 7; ++arc) {
        const auto from = random.below(nodes), to = (from + 1 + random.below(nodes - 1)) % nodes;
        const double capacity = scale * (random.chance(30) ? 0.17040998217468806 : 2.0 * share());
        const auto flow = m.add_variable(0.0, random.chance(50) ? capacity : 2.0 * capacity);
        const auto is_open = m.add_binary();
        m.set_cost(flow, random.chance(50) ? 0.0 : share());
        m.set_cost(is_open, 1.0 + share());
        m.add_row(-infinity, {{flow, 1.0}, {is_open, -capacity}}, 0.0);
        if (random.chance(20)) m.add_row(0.0, {{flow, 1.0}, {is_open, -0.3 * capacity * share()}}, infinity);
        balance[to].push_back({flow, 1.0});
        balance[from].push_back({flow, -1.0});
    }
    for (std::size_t v = 1; v < nodes; ++v)
        if (!balance[v].empty()) m.add_row(scale * (random.chance(70) ? 0.5 * share() : 0.0), balance[v], infinity);
    return m;
}

/// Nodes with supplies, nodes with demands, and arcs whose capacities mostly are far above any demand.
model network_with_supplies(std::uint64_t seed) {
    random_numbers random{seed};
    constexpr std::size_t nodes = 5;
    std::vector<double> demand(nodes, 0.0);
    for (std::size_t v = 1; v < nodes; ++v)
        if (random.chance(70)) demand[0] -= demand[v] = static_cast<double>(random.between(0, 30)) - 10.0;
    model m;
    std::vector<std::vector<term>> balance(nodes);
    for (std::size_t arc = 0; arc < 8; ++arc) {
        const auto from = random.below(nodes), to = (from + 1 + random.below(nodes - 1)) % nodes;
        const double capacity = random.chance(70) ? 5000.0 : 15.0;
        const auto flow = m.add_variable(0.0, capacity), is_open = m.add_binary();
        m.set_cost(is_open, 1.0);
        m.add_row(-infinity, {{flow, 1.0}, {is_open, -capacity}}, 0.0);
        balance[to].push_back({flow, 1.0});
        balance[from].push_back({flow, -1.0});
    }
    for (std::size_t v = 0; v < nodes; ++v)
        if (!balance[v].empty()) m.add_row(demand[v], balance[v], demand[v]);
    return m;
}

} // namespace

TEST_CASE("cut sets hold at every point, with supplies and with wide arcs") {
    std::size_t cuts = 0;
    for (std::uint64_t seed = 1; seed <= 300; ++seed) {
        CAPTURE(seed);
        const auto p = problem_of(network_with_supplies(seed));
        control limits{solve_options{}};
        relaxation lp{p, seed};
        if (lp.solve(limits, infinity) != lp_status::optimal) continue;
        cut_pool pool;
        const variable_bounds ends{p};
        const std::vector<double> point(lp.point().begin(), lp.point().end());
        mixed_integer_rounding rounding{p, lp.cuts(), p.lower, p.upper, ends};
        cut_sets{p}.separate(rounding, ends, point, pool);
        for (const auto& c : pool.take(point, 1000)) {
            ++cuts;
            CHECK(worst_violation(p, c) <= 1e-6 * std::max(1.0, std::abs(c.limit)));
        }
    }
    CHECK(cuts > 100);
}

TEST_CASE("one round finds the nested cuts of a path") {
    constexpr double wide = 1000.0;
    model m;
    std::vector<term> last;
    for (std::size_t arc = 0; arc < 4; ++arc) {
        const auto flow = m.add_variable(0.0, wide), is_open = m.add_binary();
        m.set_cost(is_open, 1.0);
        m.add_row(-infinity, {{flow, 1.0}, {is_open, -wide}}, 0.0);
        last.push_back({flow, -1.0});
        if (arc > 0) m.add_row(0.0, {{last[arc - 1].column, 1.0}, {flow, -1.0}}, 0.0);
    }
    m.add_row(1.0, {{last.back().column, 1.0}}, 1.0);
    const auto p = problem_of(m);
    control limits{solve_options{}};
    relaxation lp{p, 1};
    REQUIRE(lp.solve(limits, infinity) == lp_status::optimal);
    cut_pool pool;
    const variable_bounds ends{p};
    mixed_integer_rounding rounding{p, lp.cuts(), p.lower, p.upper, ends};
    cut_sets{p}.separate(rounding, ends, lp.point(), pool);
    CHECK(pool.size() == 4);
}

TEST_CASE("a small demand beside a large capacity is rounded up, unless a tolerance explains it") {
    for (const double demand : {30.0, 3.0, 1e-3, 1e-7}) {
        CAPTURE(demand);
        constexpr double capacity = 50.0;
        model m;
        const auto flow = m.add_variable(0.0, capacity), is_open = m.add_binary();
        m.add_row(-infinity, {{flow, 1.0}, {is_open, -capacity}}, 0.0);
        m.add_row(demand, {{flow, 1.0}}, infinity);
        const auto p = problem_of(m);
        relaxation lp{p, 1};
        const variable_bounds ends{p};
        mixed_integer_rounding rounding{p, lp.cuts(), p.lower, p.upper, ends};
        const auto found = rounding.separate(std::vector<row_multiplier>{{1, 1.0}},
                                             std::vector{demand, demand / capacity}, bound_choice::relaxing);
        CHECK(found.has_value() == (demand > 1e-6));
        if (found) CHECK(found->violation(std::vector{demand, 0.5}) > 0.0);
    }
}

TEST_CASE("cuts of networks with fixed charges hold at every point, whatever the numbers are like") {
    std::size_t cuts = 0;
    for (std::uint64_t seed = 1; seed <= 200; ++seed) {
        CAPTURE(seed);
        const auto p = problem_of(nasty_network(seed));
        control limits{solve_options{}};
        relaxation lp{p, seed};
        if (lp.solve(limits, infinity) != lp_status::optimal) continue;
        cut_pool pool;
        const variable_bounds ends{p};
        const std::vector<double> point(lp.point().begin(), lp.point().end());
        mixed_integer_rounding rounding{p, lp.cuts(), p.lower, p.upper, ends};
        separate_gomory(p, lp, rounding, pool);
        aggregation{p}.separate(rounding, p.lower, p.upper, ends, point, pool);
        for (const auto& c : pool.take(point, 1000)) {
            ++cuts;
            CHECK(worst_violation(p, c) <= 1e-6 * std::max(1.0, std::abs(c.limit)));
        }
    }
    CHECK(cuts > 100);
}

TEST_CASE("what is left of terms that cancel each other is no cut") {
    constexpr double capacity = 0.17040998217468806;
    model m;
    const auto flow = m.add_variable(0.0, capacity);
    const auto is_open = m.add_binary();
    m.add_row(-infinity, {{flow, 1.0}, {is_open, -capacity}}, 0.0);
    const auto p = problem_of(m);
    relaxation lp{p, 1};
    const variable_bounds ends{p};
    mixed_integer_rounding rounding{p, lp.cuts(), p.lower, p.upper, ends};
    for (const double open : {0.1, 0.427792, 0.9}) {
        const std::vector point{0.5 * capacity * open, open};
        const auto found = rounding.separate(std::vector<row_multiplier>{{0, 1.0}}, point);
        if (found) CHECK(worst_violation(p, *found) <= 1e-6);
    }
}

TEST_CASE("cuts take away the relaxation's point and no whole one") {
    constexpr std::uint64_t models = 400;
    SUBCASE("Gomory") {
        CHECK(try_separator(models, [](const problem& p, relaxation& lp, cut_pool& pool) {
                  const variable_bounds ends{p};
                  mixed_integer_rounding rounding{p, lp.cuts(), p.lower, p.upper, ends};
                  separate_gomory(p, lp, rounding, pool);
              }) > 100);
    }
    SUBCASE("rounding of sums of rows") {
        CHECK(try_separator(models, [](const problem& p, relaxation& lp, cut_pool& pool) {
                  const variable_bounds ends{p};
                  mixed_integer_rounding rounding{p, lp.cuts(), p.lower, p.upper, ends};
                  const std::vector<double> point(lp.point().begin(), lp.point().end());
                  aggregation{p}.separate(rounding, p.lower, p.upper, ends, point, pool);
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
