#include "judge.hpp"
#include "milp/lp/relaxation.hpp"
#include <optpipe/core/random.hpp>
#include <optpipe/milp/lp/simplex.hpp>
#include <optpipe/milp/model.hpp>

#include <doctest/doctest.h>

#include <chrono>
#include <cmath>
#include <cstddef>
#include <limits>
#include <stop_token>
#include <vector>

using namespace optpipe::milp;
using optpipe::random_numbers;

namespace {

constexpr double unlimited = std::numeric_limits<double>::infinity();

/// Rows as dense lists of coefficients, each with its bounds.
struct dense_row {
    double lower;
    std::vector<double> coefficients;
    double upper;
};

linear_program make(std::vector<double> cost, std::vector<double> lower, std::vector<double> upper,
                    const std::vector<dense_row>& rows) {
    linear_program p;
    p.cost = std::move(cost);
    p.column_lower = std::move(lower);
    p.column_upper = std::move(upper);
    std::vector<Eigen::Triplet<double>> entries;
    for (std::size_t i = 0; i < rows.size(); ++i) {
        p.row_lower.push_back(rows[i].lower);
        p.row_upper.push_back(rows[i].upper);
        for (std::size_t j = 0; j < p.cost.size(); ++j)
            if (rows[i].coefficients[j] != 0.0)
                entries.emplace_back(static_cast<int>(i), static_cast<int>(j), rows[i].coefficients[j]);
    }
    p.matrix.resize(static_cast<Eigen::Index>(rows.size()), static_cast<Eigen::Index>(p.cost.size()));
    p.matrix.setFromTriplets(entries.begin(), entries.end());
    return p;
}

/// All columns have the bounds [0, ∞).
linear_program make(std::vector<double> cost, const std::vector<dense_row>& rows) {
    const auto n = cost.size();
    return make(std::move(cost), std::vector(n, 0.0), std::vector(n, unlimited), rows);
}

void check_optimum(simplex s, double objective) {
    const auto status = s.solve();
    REQUIRE(status == lp_status::optimal);
    CHECK(judge::objection(s, status) == "");
    CHECK(s.objective() == doctest::Approx(objective).epsilon(1e-9));
}

/// A long chain of transport: `size` sources and sinks with random costs, large enough not to be solved at once.
linear_program transport(std::size_t size, std::uint64_t seed, double supply = 10.0, double demand = 9.0,
                         std::size_t costs = 100) {
    random_numbers random{seed};
    std::vector<double> cost;
    std::vector<dense_row> rows(2 * size, {0.0, std::vector(size * size, 0.0), 0.0});
    for (std::size_t i = 0; i < size; ++i)
        for (std::size_t k = 0; k < size; ++k) {
            cost.push_back(static_cast<double>(1 + random.below(costs)));
            rows[i].coefficients[i * size + k] = 1.0;
            rows[size + k].coefficients[i * size + k] = 1.0;
        }
    for (std::size_t i = 0; i < size; ++i) {
        rows[i].upper = supply;
        rows[size + i].lower = demand;
        rows[size + i].upper = unlimited;
    }
    return make(cost, rows);
}

} // namespace

TEST_CASE("nothing at all has an optimum") {
    check_optimum(simplex{linear_program{}}, 0.0);
    check_optimum(simplex{make({1.0, -1.0, 0.0}, {-2.0, 1.0, -unlimited}, {5.0, 3.0, unlimited}, {})}, -5.0);
    check_optimum(simplex{make({}, {{-1.0, {}, 1.0}})}, 0.0);
    check_optimum(simplex{make({0.0}, {{-unlimited, {0.0}, unlimited}})}, 0.0);
}

TEST_CASE("a row without columns can be impossible, a column without rows unbounded") {
    simplex impossible{make({}, {{1.0, {}, 2.0}})};
    CHECK(impossible.solve() == lp_status::infeasible);
    CHECK(verify_infeasible(impossible.program(), impossible.infeasibility_ray(), 1e-9));

    simplex endless{make({1.0, -1.0}, {{0.0, {1.0, 0.0}, 4.0}})};
    CHECK(endless.solve() == lp_status::unbounded);
    CHECK(verify_unbounded(endless.program(), endless.unbounded_ray(), 1e-9));
    CHECK(endless.unbounded_ray()[1] > 0.0);
    CHECK(endless.dual_bound() == -unlimited);
}

TEST_CASE("a small coefficient ends a ray although large terms cancel") {
    // x = y = z, and 1e9 y - 1e9 x + small z ≤ 1
    const auto status = [](double small) {
        return simplex{
            make({-1.0, 0.0, 0.0},
                 {{0.0, {1.0, -1.0, 0.0}, 0.0}, {0.0, {1.0, 0.0, -1.0}, 0.0}, {-unlimited, {-1e9, 1e9, small}, 1.0}})}
            .solve();
    };
    for (const double small : {1e-9, 1e-6, 1e-3, 1.0}) {
        CAPTURE(small);
        CHECK(status(small) != lp_status::unbounded); // x ≤ 1 / small
        CHECK(status(-small) == lp_status::unbounded);
    }
}

TEST_CASE("the rounding of a coefficient ends no ray") {
    // x = 3 y, and 0.1 x - 0.3 y ≤ 1. The difference would be 0, but the numbers are rounded to doubles.
    simplex s{make({-1.0, 0.0}, {{0.0, {1.0, -3.0}, 0.0}, {-unlimited, {0.1, -0.3}, 1.0}})};
    CHECK(0.1 * 3.0 > 0.3);
    CHECK(s.solve() == lp_status::unbounded);
}

TEST_CASE("bounds that cross are infeasible, and no longer once they are mended") {
    simplex s{make({1.0, 1.0}, {{2.0, {1.0, 1.0}, unlimited}})};
    s.set_column_bounds(0, 3.0, 2.0);
    CHECK(s.solve() == lp_status::infeasible);
    CHECK(verify_infeasible(s.program(), s.infeasibility_ray(), 1e-9));
    s.set_column_bounds(0, 0.0, 2.0);
    s.set_row_bounds(0, 5.0, 4.0);
    CHECK(s.solve() == lp_status::infeasible);
    s.set_row_bounds(0, 5.0, 5.0);
    check_optimum(s, 5.0);
}

TEST_CASE("signs of multipliers") {
    // minimize x + 3 y with x + y >= 2, x <= 1.5
    simplex s{make({1.0, 3.0}, {0.0, 0.0}, {1.5, unlimited}, {{2.0, {1.0, 1.0}, unlimited}})};
    check_optimum(s, 3.0);
    s.solve();
    CHECK(s.primal()[0] == doctest::Approx(1.5));
    CHECK(s.primal()[1] == doctest::Approx(0.5));
    CHECK(s.row_activity()[0] == doctest::Approx(2.0));
    CHECK(s.duals()[0] == doctest::Approx(3.0));
    CHECK(s.reduced_costs()[0] == doctest::Approx(-2.0));
    CHECK(s.current_basis().columns == std::vector{basis_status::at_upper, basis_status::basic});
    CHECK(s.current_basis().rows == std::vector{basis_status::at_lower});
}

TEST_CASE("a ranged row at its upper end") {
    // maximize x + y with 1 <= x + y <= 4
    simplex s{make({-1.0, -2.0}, {{1.0, {1.0, 1.0}, 4.0}})};
    check_optimum(s, -8.0);
    s.solve();
    CHECK(s.duals()[0] == doctest::Approx(-2.0));
    CHECK(s.current_basis().columns == std::vector{basis_status::at_lower, basis_status::basic});
    CHECK(s.current_basis().rows == std::vector{basis_status::at_upper});
}

TEST_CASE("rows come and go") {
    simplex s{make({1.0, 1.0}, {{1.0, {1.0, 2.0}, 8.0}, {2.0, {3.0, 4.0}, 9.0}, {0.5, {0.0, 1.0}, 7.0}})};
    REQUIRE(s.solve() == lp_status::optimal);
    s.add_rows(std::vector{cut_row{{{1, 5.0}, {0, 6.0}, {1, 1.0}}, 3.0, 10.0}, cut_row{{}, -1.0, 1.0}});
    s.remove_rows(std::vector<std::size_t>{1, 0});
    const auto& p = s.program();
    CHECK(p.row_lower == std::vector{0.5, 3.0, -1.0});
    CHECK(p.row_upper == std::vector{7.0, 10.0, 1.0});
    const judge::dense a{p};
    CHECK(a.rows == 3);
    CHECK(a.entries == std::vector{0.0, 1.0, 6.0, 6.0, 0.0, 0.0});
    check_optimum(s, 0.5);
    s.remove_rows(std::vector<std::size_t>{0, 1, 2});
    CHECK(s.rows() == 0);
    check_optimum(s, 0.0);
}

TEST_CASE("examples that cycle with naive rules") {
    // Beale (1955)
    const auto beale = make({-0.75, 150.0, -0.02, 6.0}, {{-unlimited, {0.25, -60.0, -0.04, 9.0}, 0.0},
                                                         {-unlimited, {0.5, -90.0, -0.02, 3.0}, 0.0},
                                                         {-unlimited, {0.0, 0.0, 1.0, 0.0}, 1.0}});
    // Kuhn, as cited by Balinski and Tucker (1969)
    const auto kuhn = make({-2.0, -3.0, 1.0, 12.0}, {{-unlimited, {-2.0, -9.0, 1.0, 9.0}, 0.0},
                                                     {-unlimited, {1.0 / 3.0, 1.0, -1.0 / 3.0, -2.0}, 0.0},
                                                     {-unlimited, {2.0, 3.0, -1.0, -12.0}, 2.0}});
    for (const bool scaling : {true, false}) {
        check_optimum(simplex{beale, {.scaling = scaling}}, -0.05);
        check_optimum(simplex{kuhn, {.scaling = scaling}}, -2.0);
    }
}

TEST_CASE("Klee and Minty's cube") {
    constexpr std::size_t dimensions = 10;
    std::vector<double> cost;
    std::vector<dense_row> rows;
    for (std::size_t i = 0; i < dimensions; ++i) {
        cost.push_back(-std::pow(2.0, static_cast<double>(dimensions - 1 - i)));
        dense_row r{-unlimited, std::vector(dimensions, 0.0), std::pow(5.0, static_cast<double>(i + 1))};
        for (std::size_t j = 0; j < i; ++j)
            r.coefficients[j] = std::pow(2.0, static_cast<double>(i - j + 1));
        r.coefficients[i] = 1.0;
        rows.push_back(r);
    }
    check_optimum(simplex{make(cost, rows)}, -std::pow(5.0, dimensions));
}

TEST_CASE("badly scaled rows and columns") {
    // x(j) = 10^j in its own units, rows in theirs
    constexpr std::size_t size = 12;
    std::vector<double> cost(size, 0.0);
    std::vector<dense_row> rows;
    for (std::size_t i = 0; i < size; ++i) {
        const double unit = std::pow(10.0, static_cast<double>(i) - 5.0);
        const double row_unit = std::pow(10.0, 8.0 - static_cast<double>((5 * i) % 14));
        dense_row r{0.0, std::vector(size, 0.0), unlimited};
        r.coefficients[i] = row_unit / unit;
        if (i > 0) r.coefficients[i - 1] = 0.5 * row_unit * 10.0 / unit;
        r.lower = row_unit * (i > 0 ? 1.5 : 1.0);
        rows.push_back(r);
        cost[i] = 1.0 / unit;
    }
    for (const bool scaling : {true, false}) {
        simplex s{make(cost, rows), {.scaling = scaling}};
        const auto status = s.solve();
        REQUIRE(status == lp_status::optimal);
        CHECK(judge::objection(s, status) == "");
    }
}

TEST_CASE("big-M rows") {
    constexpr double big = 1e6;
    // Either x >= 10 or y >= 10, relaxed
    const auto p = make({1.0, 2.0, 0.0}, {0.0, 0.0, 0.0}, {unlimited, unlimited, 1.0},
                        {{10.0, {1.0, 0.0, big}, unlimited}, {10.0 - big, {0.0, 1.0, -big}, unlimited}});
    simplex s{p};
    check_optimum(s, 0.0);
    s.set_column_bounds(2, 0.0, 0.0);
    check_optimum(s, 10.0);
    s.set_column_bounds(2, 1.0, 1.0);
    check_optimum(s, 20.0);
}

TEST_CASE("what is infeasible by no more than the tolerance gets one of the two answers") {
    for (const double unit : {1.0, 1e-4, 1e4, 1e6})
        for (const double gap : {1e-10, 9e-10, 1e-9, 1.5e-9, 1e-8, 1e-7, 1e-6})
            for (const bool scaling : {true, false}) {
                INFO(unit << " " << gap << " " << scaling);
                simplex s{make({1.0, 1.0}, {0.0, 0.0}, {1.0, 1.0},
                               {{(2.0 + gap) * unit, {unit, unit}, unlimited}, {0.0, {1.0, -1.0}, 0.0}}),
                          {.scaling = scaling}};
                const auto status = s.solve();
                CHECK((status == lp_status::infeasible || status == lp_status::optimal));
                if (gap > 1e-7) CHECK(status == lp_status::infeasible);
                CHECK(judge::objection(s, status) == "");
            }
}

TEST_CASE("a limit ends the solve with a valid bound, and the next solve goes on") {
    simplex reference{transport(12, 1)};
    REQUIRE(reference.solve() == lp_status::optimal);
    const double optimum = reference.objective();
    CHECK(reference.iterations() > 20);

    simplex limited{reference.program()};
    double last = -unlimited;
    std::size_t solves = 1;
    while (limited.solve({.iterations = 5}) == lp_status::iteration_limit) {
        CHECK(limited.objective() <= optimum + 1e-9);
        CHECK(limited.dual_bound() <= optimum + 1e-9);
        last = std::max(last, limited.objective());
        REQUIRE(++solves < 100);
    }
    CHECK(solves > 3);
    CHECK(last > 0.0);
    CHECK(limited.objective() == doctest::Approx(optimum).epsilon(1e-9));

    std::stop_source stop;
    stop.request_stop();
    simplex stopped{reference.program()};
    CHECK(stopped.solve({.stop = stop.get_token()}) == lp_status::stopped);
    CHECK(stopped.solve({.deadline = std::chrono::steady_clock::now()}) == lp_status::stopped);
    CHECK(stopped.dual_bound() <= optimum + 1e-9);
    check_optimum(stopped, optimum);
}

TEST_CASE("the cutoff ends the solve once the objective is proven to reach it") {
    simplex reference{transport(12, 2)};
    REQUIRE(reference.solve() == lp_status::optimal);
    const double optimum = reference.objective();

    simplex below{reference.program()};
    REQUIRE(below.solve({.cutoff = 0.5 * optimum}) == lp_status::cutoff);
    CHECK(below.objective() >= 0.5 * optimum);
    CHECK(below.objective() <= optimum + 1e-9);
    CHECK(below.iterations() < reference.iterations());

    simplex above{reference.program()};
    CHECK(above.solve({.cutoff = optimum + 1e-6}) == lp_status::optimal);
    CHECK(above.objective() == doctest::Approx(optimum).epsilon(1e-9));
}

TEST_CASE("costs that were perturbed against stalling never reach the cutoff for the program") {
    for (std::uint64_t seed = 1; seed <= 5; ++seed) {
        simplex reference{transport(15, seed, 1.0, 1.0, 2)};
        REQUIRE(reference.solve() == lp_status::optimal);
        const double optimum = reference.objective();
        simplex s{reference.program()};
        CHECK(s.solve({.cutoff = optimum + 1e-6}) == lp_status::optimal);
        CHECK(s.objective() == doctest::Approx(optimum).epsilon(1e-9));
    }
}

TEST_CASE("a row of the tableau is a combination of rows that holds everywhere") {
    random_numbers random{6};
    for (const bool scaling : {true, false}) {
        simplex s{transport(6, 3), {.scaling = scaling}};
        s.set_column_bounds(0, 0.0, 0.5);
        REQUIRE(s.solve() == lp_status::optimal);
        const judge::dense a{s.program()};
        std::vector<double> x(s.columns());
        for (double& v : x)
            v = random_numbers{random.next()}.chance(50) ? 1.5 : -0.25;
        std::size_t seen = 0;
        for (std::size_t j = 0; j < s.columns(); ++j) {
            if (!s.is_basic(j)) continue;
            ++seen;
            const auto found = s.tableau_row(j);
            REQUIRE(found);
            const auto& row = *found;
            double sum = 0.0;
            for (std::size_t k = 0; k < s.columns(); ++k) {
                sum += row.columns[k] * x[k];
                if (s.is_basic(k)) CHECK(row.columns[k] == (k == j ? 1.0 : 0.0));
            }
            for (std::size_t i = 0; i < s.rows(); ++i) {
                double activity = 0.0;
                for (std::size_t k = 0; k < s.columns(); ++k)
                    activity += a.at(i, k) * x[k];
                sum -= row.slacks[i] * activity;
                if (s.current_basis().rows[i] == basis_status::basic)
                    CHECK(row.slacks[i] == doctest::Approx(0.0).epsilon(1e-9));
            }
            CHECK(std::abs(sum) < 1e-9);
        }
        CHECK(seen > 5);
    }
}

TEST_CASE("a relaxation minimizes") {
    model m;
    const auto x = m.add_variable(0.0, 4.0, domain::integer);
    const auto y = m.add_variable(-1.0, 7.5);
    m.add_row(-infinity, {{x, 2.0}, {y, 1.0}}, 9.0);
    m.set_cost(x, 3.0);
    m.set_cost(y, 1.0);
    m.set_direction(sense::maximize);
    check_optimum(simplex{relaxation_of(m)}, -13.0);
}

TEST_CASE("many columns and rows, and a deadline") {
    constexpr std::size_t size = 20'000;
    random_numbers random{7};
    linear_program p;
    std::vector<Eigen::Triplet<double>> entries;
    for (std::size_t j = 0; j < size; ++j) {
        p.cost.push_back(static_cast<double>(1 + random.below(9)));
        entries.emplace_back(static_cast<int>(j), static_cast<int>(j), 1.0);
        p.column_lower.push_back(0.0);
        p.column_upper.push_back(unlimited);
        for (int k = 0; k < 3; ++k)
            entries.emplace_back(static_cast<int>(random.below(size)), static_cast<int>(j),
                                 static_cast<double>(1 + random.below(5)));
    }
    p.row_lower.assign(size, 1.0);
    p.row_upper.assign(size, unlimited);
    p.matrix.resize(static_cast<Eigen::Index>(size), static_cast<Eigen::Index>(size));
    p.matrix.setFromTriplets(entries.begin(), entries.end());
    simplex s{p};
    const auto status = s.solve({.deadline = std::chrono::steady_clock::now() + std::chrono::milliseconds{300}});
    CHECK((status == lp_status::stopped || status == lp_status::optimal));
    CHECK(s.dual_bound() > 0.0);
    CHECK(std::isfinite(s.dual_bound()));
}
