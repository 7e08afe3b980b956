#include "oracle/milp_random.hpp"
#include <optpipe/milp/check.hpp>
#include <optpipe/milp/search/conflict/analysis.hpp>
#include <optpipe/milp/search/conflict/conflict_search.hpp>
#include <optpipe/milp/search/implied_integers.hpp>
#include <optpipe/milp/search/propagation/propagator.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

using namespace optpipe;
using namespace optpipe::milp;
using namespace optpipe::milp::search;

namespace {

/// All points of a model of bounded integers.
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

bool satisfies(const std::vector<double>& point, const std::vector<literal>& statement) {
    return std::any_of(statement.begin(), statement.end(),
                       [&](literal l) { return holds_at(l, point[column_of(l.bound)]); });
}

bool within(const domains& d, const std::vector<double>& point) {
    for (std::size_t j = 0; j < point.size(); ++j)
        if (point[j] < d.lower(j) || point[j] > d.upper(j)) return false;
    return true;
}

model pure(std::uint64_t seed) { return oracle::random_model(seed, {.integers = 7, .reals = 0, .rows = 12}); }

} // namespace

TEST_CASE("a literal excludes its negation, and one of the two holds") {
    for (const double value : {-2.0, 0.0, 3.0})
        for (const auto l : {at_least(4, value), at_most(4, value)}) {
            CHECK(negation(negation(l)) == l);
            for (const double x : {-3.0, -2.0, -1.0, 0.0, 2.0, 3.0, 4.0})
                CHECK(holds_at(l, x) != holds_at(negation(l), x));
        }
}

TEST_CASE("propagation keeps every point, decisions keep those that obey, learned_clauses hold for all") {
    std::size_t learned_clauses = 0, refuted = 0;
    constexpr std::uint64_t models = 400;
    for (std::uint64_t seed = 1; seed <= models; ++seed) {
        CAPTURE(seed);
        const auto m = pure(seed);
        const auto points = feasible_points(m);
        const auto p = problem_of(m);
        propagator engine{p};
        conflict_analysis analysis{p};
        random_numbers random{seed};
        for (std::size_t step = 0; step < 40; ++step) {
            if (!engine.propagate()) {
                if (engine.refuted()) {
                    CHECK(points.empty());
                    ++refuted;
                    break;
                }
                const std::vector<literal> conflict = engine.conflict();
                const auto learned = analysis.analyze(engine, conflict);
                for (const auto& point : points)
                    CHECK(satisfies(point, learned.literals));
                ++learned_clauses;
                engine.back_to(learned.back_to);
                if (!engine.learn(learned.literals, true, learned.levels)) break;
                continue;
            }
            std::vector<std::size_t> open;
            for (std::size_t j = 0; j < p.columns(); ++j)
                if (!engine.bounds().is_fixed(j)) open.push_back(j);
            if (engine.level() == 0)
                for (const auto& point : points)
                    CHECK(within(engine.bounds(), point));
            if (open.empty()) {
                std::vector<double> point;
                for (std::size_t j = 0; j < p.columns(); ++j)
                    point.push_back(engine.bounds().lower(j));
                CHECK(check(m, point).empty());
                engine.back_to(0);
                continue;
            }
            const auto j = open[random.below(open.size())];
            const double middle = std::floor(0.5 * (engine.bounds().lower(j) + engine.bounds().upper(j)));
            engine.decide(random.chance(50) ? at_most(j, middle) : at_least(j, middle + 1.0));
        }
    }
    CHECK(learned_clauses > 20);
    CHECK(refuted > 10);
}

TEST_CASE("taking decisions back restores every bound") {
    std::size_t taken = 0;
    for (std::uint64_t seed = 1; seed <= 100; ++seed) {
        CAPTURE(seed);
        const auto p = problem_of(pure(seed));
        propagator engine{p};
        if (!engine.propagate()) continue;
        std::vector<double> before;
        for (bound_index b = 0; b < 2 * p.columns(); ++b)
            before.push_back(engine.bounds()[b]);
        for (std::size_t j = 0; j < p.columns(); ++j) {
            if (engine.bounds().is_fixed(j)) continue;
            engine.decide(at_most(j, engine.bounds().lower(j)));
            ++taken;
            if (!engine.propagate()) break;
        }
        engine.back_to(0);
        for (bound_index b = 0; b < 2 * p.columns(); ++b)
            CHECK(engine.bounds()[b] == before[b]);
    }
    CHECK(taken > 50);
}

TEST_CASE("conflict search worker_results a point or refutes, as looking at all points does") {
    for (std::uint64_t seed = 1; seed <= 400; ++seed) {
        CAPTURE(seed);
        const auto m = pure(seed);
        const auto points = feasible_points(m);
        const auto p = problem_of(m);
        double best = infinity;
        conflict_search search{p, seed};
        auto outcome = search.run(10'000, {});
        while (outcome == search_outcome::point) {
            std::vector<double> point;
            for (std::size_t j = 0; j < p.columns(); ++j)
                point.push_back(search.engine().bounds().lower(j));
            REQUIRE(check(m, point).empty());
            CHECK(p.objective_of(point) < best);
            best = p.objective_of(point);
            search.set_cutoff(best - 1e-3);
            outcome = search.run(10'000, {});
        }
        REQUIRE(outcome == search_outcome::refuted);
        double least = infinity;
        for (const auto& point : points)
            least = std::min(least, p.objective_of(point));
        CHECK(best == least);
    }
}

TEST_CASE("differences of continuous columns are measured in what their numbers have in common") {
    model m;
    const auto start = m.add_variable(0.0, 30.0), end = m.add_variable(0.0, 30.0);
    const auto first = m.add_binary();
    m.add_row(end - start >= 4.5);
    m.add_row(end - start - 12.0 * first >= -3.0);
    m.set_objective(end);
    auto p = problem_of(m);
    CHECK(implied_integers{p}.apply() == 2);
    make_rows_integral(p);
    CHECK(p.unit == std::vector{1.5, 1.5, 1.0});
    CHECK(p.upper[0] == 20.0);
    CHECK(p.row_lower == std::vector{3.0, -2.0});
    CHECK(find_objective_step(p) == 1.5);
}

TEST_CASE("columns that aren't differences stay continuous") {
    model m;
    const auto x = m.add_variable(0.0, 30.0), y = m.add_variable(0.0, 30.0), z = m.add_variable(0.0, 10.0);
    m.add_row(x + y <= 4.5);
    m.add_row(x - y >= 0.1234567891);
    m.add_row(z - 0.3 * x >= 0.0);
    m.set_objective(x + y + z);
    auto p = problem_of(m);
    CHECK(implied_integers{p}.apply() == 0);
    CHECK(p.unit == std::vector{1.0, 1.0, 1.0});
}

TEST_CASE("a column that nothing but integers stops is one of them") {
    model m;
    const auto product = m.add_variable(0.0, 1.0);
    const auto a = m.add_binary(), b = m.add_binary();
    const auto other = m.add_variable(0.0, 10.0);
    m.add_row(product - a <= 0.0);
    m.add_row(product - b <= 0.0);
    m.add_row(0.7 * other + 3.0 * product >= 1.0);
    m.set_objective(other + 0.1 * a + 0.1 * b);
    auto p = problem_of(m);
    CHECK(implied_integers{p}.apply() >= 1);
    CHECK(p.kind[0] == column_kind::implied);
    CHECK(p.prefers_upper[0] == 1);
}
