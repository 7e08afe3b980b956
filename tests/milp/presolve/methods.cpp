#include <optpipe/milp/check.hpp>
#include <optpipe/milp/presolve.hpp>
#include <optpipe/milp/presolve/clique_merging.hpp>
#include <optpipe/milp/presolve/coefficient_tightening.hpp>
#include <optpipe/milp/presolve/dominated_columns.hpp>
#include <optpipe/milp/presolve/doubleton_equations.hpp>
#include <optpipe/milp/presolve/dual_fixing.hpp>
#include <optpipe/milp/presolve/duplicate_columns.hpp>
#include <optpipe/milp/presolve/duplicate_rows.hpp>
#include <optpipe/milp/presolve/free_columns.hpp>
#include <optpipe/milp/presolve/implied_bounds.hpp>
#include <optpipe/milp/presolve/integer_rows.hpp>
#include <optpipe/milp/presolve/probing.hpp>
#include <optpipe/milp/presolve/reducer.hpp>
#include <optpipe/milp/presolve/redundant_rows.hpp>
#include <optpipe/milp/presolve/singleton_columns.hpp>
#include <optpipe/milp/presolve/singleton_rows.hpp>
#include <optpipe/milp/presolve/tight_rows.hpp>

#include <doctest/doctest.h>

#include <cstddef>
#include <string>
#include <vector>

using namespace optpipe::milp;
using namespace optpipe::milp::presolving;

namespace {

/// The reduction of a model by one method, and the way back.
struct reduced {
    presolve_result result;
    verdict found;

    [[nodiscard]] const model& left() const { return result.model(); }
    [[nodiscard]] std::vector<term> terms(std::size_t i) const {
        const auto all = left().terms(row{i});
        return {all.begin(), all.end()};
    }
    [[nodiscard]] bool row_is(std::size_t i, double lower, double upper) const {
        return left().row_lower(row{i}) == lower && left().row_upper(row{i}) == upper;
    }
    [[nodiscard]] bool column_is(std::size_t j, double lower, double upper) const {
        return left().lower(variable{j}) == lower && left().upper(variable{j}) == upper;
    }
};

template <class Method> reduced run(const model& m, const Method& method) {
    reducer r{m, {}};
    const auto found = r.run(method);
    return {{presolve_status::reduced, r, m}, found};
}

const variable x{0}, y{1}, z{2};

model with_reals(std::size_t count, double lower = 0.0, double upper = 10.0) {
    model m;
    for (std::size_t i = 0; i < count; ++i)
        m.add_variable(lower, upper);
    return m;
}
model with_binaries(std::size_t count) {
    model m;
    for (std::size_t i = 0; i < count; ++i)
        m.add_binary();
    return m;
}

} // namespace

TEST_CASE("redundant rows, and sides, go; forcing rows fix; what can't be met is infeasible") {
    auto m = with_reals(2);
    m.add_row(x + y <= 20);
    m.add_row(-5 <= x - y <= 10);
    m.add_row(0 <= x + y);
    const auto r = run(m, redundant_rows{});
    REQUIRE(r.left().rows() == 1);
    CHECK(r.row_is(0, -5.0, infinity));

    auto forcing = with_reals(2);
    forcing.add_row(x - y <= -10);
    const auto f = run(forcing, redundant_rows{});
    CHECK(f.left().variables() == 0);
    CHECK(f.result.restore(std::vector<double>{}) == std::vector{0.0, 10.0});

    auto impossible = with_reals(2);
    impossible.add_row(x + y >= 21);
    CHECK(run(impossible, redundant_rows{}).found == verdict::infeasible);
    model crossed;
    crossed.add_row(1.0, {}, 2.0);
    CHECK(run(crossed, redundant_rows{}).found == verdict::infeasible);
}

TEST_CASE("singleton rows become bounds, rounded for integers") {
    model m;
    m.add_variable(0.0, 10.0);
    m.add_variable(0.0, 10.0, domain::integer);
    m.add_row(-2 * x >= -8);
    m.add_row(3 <= 2 * y <= 9);
    const auto r = run(m, singleton_rows{});
    CHECK((r.left().rows() == 0 && r.column_is(0, 0.0, 4.0) && r.column_is(1, 2.0, 4.0)));
    auto impossible = with_reals(1);
    impossible.add_row(1.0 * x >= 11);
    CHECK(run(impossible, singleton_rows{}).found == verdict::infeasible);
}

TEST_CASE("integer rows are rounded to multiples of their divisor") {
    model m;
    for (int i = 0; i < 2; ++i)
        m.add_variable(0.0, 100.0, domain::integer);
    m.add_row(5 <= 4 * x + 6 * y <= 11);
    m.add_row(0.5 * x - 1.5 * y <= 2.2);
    m.add_row(4 * x - 6 * y <= 4);
    const auto r = run(m, integer_rows{});
    CHECK((r.row_is(0, 6.0, 10.0) && r.row_is(1, -infinity, 2.0) && r.row_is(2, -infinity, 4.0)));
    m.add_row(2 * x + 4 * y == 7);
    CHECK(run(m, integer_rows{}).found == verdict::infeasible);
}

TEST_CASE("an equation of integers is infeasible where none of its sums lie") {
    const auto is_infeasible = [](double sum, bool mirrored) {
        model m;
        const auto sign = mirrored ? -1.0 : 1.0;
        for (int i = 0; i < 3; ++i)
            m.add_variable(mirrored ? -infinity : 2.0, mirrored ? -2.0 : infinity, domain::integer);
        m.add_row(sign * (12 * x + 20 * y + 30 * z) == sum);
        return run(m, integer_rows{}).found == verdict::infeasible;
    };
    for (int sum = 0; sum <= 200; ++sum) {
        bool exists = false;
        for (int a = 2; 12 * a <= sum; ++a)
            for (int b = 2; 12 * a + 20 * b <= sum; ++b)
                exists = exists || (sum - 12 * a - 20 * b >= 60 && (sum - 12 * a - 20 * b) % 30 == 0);
        CAPTURE(sum);
        if (sum < 124) continue; // other rules see that the least sum is larger
        CHECK(is_infeasible(sum, false) == !exists);
        CHECK(is_infeasible(sum, true) == !exists);
    }
}

TEST_CASE("bounds follow from rows") {
    model m;
    m.add_variable(0.0, infinity);
    m.add_variable(1.0, 3.0);
    m.add_variable(0.0, 9.0, domain::integer);
    m.add_row(2 * x + y <= 7);
    m.add_row(x - 2 * z >= -5);
    const auto r = run(m, implied_bounds{});
    CHECK((r.column_is(0, 0.0, 3.0) && r.column_is(1, 1.0, 3.0)));
    CHECK(r.found == verdict::applied);
    auto again = m;
    again.set_bounds(x, 0.0, 3.0);
    CHECK(run(again, implied_bounds{}).column_is(2, 0.0, 4.0));
    auto no_integers = with_reals(2, 0.0, infinity);
    no_integers.add_row(x + y <= 7);
    CHECK(run(no_integers, implied_bounds{}).found == verdict::unchanged);
}

TEST_CASE("columns that nothing keeps go where they are cheapest") {
    auto m = with_reals(3);
    m.set_objective(x - y);
    m.add_row(x + z <= 4);
    m.add_row(y - z >= -3);
    const auto r = run(m, dual_fixing{});
    CHECK((!r.result.find(x) && !r.result.find(y)));
    CHECK(r.result.restore(std::vector{2.0}) == std::vector{0.0, 10.0, 2.0});

    auto open = with_reals(1, 0.0, infinity);
    open.set_objective(-1.0 * x);
    CHECK(run(open, dual_fixing{}).found == verdict::unbounded);

    auto free = with_reals(2, 0.0, infinity);
    free.set_objective(1.0 * y);
    free.add_row(x - 2 * y >= 3);
    free.add_row(2 * x + y >= 1);
    const auto released = run(free, dual_fixing{});
    CHECK((released.left().rows() == 0 && released.left().variables() <= 1));
    const auto values = released.result.restore(std::vector<double>(released.left().variables(), 0.0));
    CHECK(check(free, values).empty());
}

TEST_CASE("a singleton column without cost is a slack, and an equation takes over a cost") {
    auto m = with_reals(3);
    m.add_row(2 <= x + y - 2 * z <= 8);
    const auto r = run(m, singleton_columns{});
    CHECK(r.left().variables() == 2);
    for (const double a : {0.0, 4.0, 10.0})
        for (const double b : {0.0, 7.0}) {
            if (!check(r.left(), std::vector{a, b}).empty()) continue;
            CHECK(check(m, r.result.restore(std::vector{a, b})).empty());
        }

    auto costly = with_reals(2);
    costly.set_objective(3 * x + y + 1);
    costly.add_row(x + 2 * y == 6);
    const auto moved = run(costly, singleton_columns{});
    REQUIRE(moved.left().variables() == 1);
    const auto values = moved.result.restore(std::vector{2.0});
    CHECK(check(costly, values).empty());
    CHECK(objective_value(costly, values) == objective_value(moved.left(), std::vector{2.0}));

    auto kept = with_reals(2, 0.0, infinity);
    kept.set_bounds(y, -infinity, 5.0);
    kept.set_objective(2 * x);
    kept.add_row(x - y >= 1);
    kept.add_row(0.0, {{y, 1.0}}, 4.0);
    CHECK(run(kept, singleton_columns{}).found == verdict::unchanged);
    kept.set_bounds(x, -10.0, infinity);
    kept.set_bounds(y, -3.0, 5.0);
    CHECK(run(kept, singleton_columns{}).row_is(0, 1.0, 1.0));
    CHECK(run(kept, singleton_columns{false}).found == verdict::unchanged);
}

TEST_CASE("one to one, a singleton column only goes with an equation, which says what it was") {
    auto slack = with_reals(3);
    slack.add_row(2 <= x + y - 2 * z <= 8);
    CHECK(run(slack, singleton_columns{false, false}).found == verdict::unchanged);

    auto m = with_reals(2);
    m.add_row(2 * x + 4 * y == 20);
    const auto r = run(m, singleton_columns{false, false});
    REQUIRE(r.left().variables() == 1);
    const auto cut = r.result.translate(1 <= x + y + 1 <= 7); // x = 10 - 2 y
    REQUIRE(cut.has_value());
    CHECK(cut->body.terms() == std::vector<term>{{variable{0}, -1.0}});
    CHECK(cut->body.constant() == 11.0);
    CHECK((cut->lower == 1.0 && cut->upper == 7.0));
    CHECK(r.result.restore(std::vector{3.0}) == std::vector{4.0, 3.0});
}

TEST_CASE("a row is translated unless it tells columns apart that have become one") {
    auto m = with_reals(3);
    m.add_row(x + 2 * y + z <= 12);
    m.add_row(3 * x + 6 * y - z <= 9);
    const auto r = run(m, duplicate_columns{});
    REQUIRE(r.left().variables() == 2);
    const auto cut = r.result.translate(0.5 * x + y + z <= 4);
    REQUIRE(cut.has_value());
    const std::vector reduced{3.0, 2.0};
    CHECK(activity(cut->body.terms(), reduced) ==
          activity(std::vector<term>{{x, 0.5}, {y, 1.0}, {z, 1.0}}, r.result.restore(reduced)));
    CHECK(!r.result.translate(y + z <= 4).has_value());
    CHECK(!r.result.translate(x + z <= 4).has_value());
    CHECK(r.result.translate(1.0 * z <= 4).has_value());

    model fixed;
    fixed.add_variable(3.0, 3.0);
    fixed.add_variable(0.0, 5.0);
    const auto f = run(fixed, redundant_rows{});
    const auto constant = f.result.translate(2 * x + x + y <= 4);
    REQUIRE(constant.has_value());
    CHECK(constant->body.constant() == 9.0);
    CHECK(constant->body.terms() == std::vector<term>{{variable{0}, 1.0}});
}

TEST_CASE("an equation of two columns takes one away, an integer only where that keeps it whole") {
    auto m = with_reals(3);
    m.set_objective(x + z);
    m.add_row(x - 2 * y == 1);
    m.add_row(x + y + z <= 9);
    const auto r = run(m, doubleton_equations{});
    REQUIRE((r.left().variables() == 2 && r.left().rows() == 1));
    const auto values = r.result.restore(std::vector{r.left().lower(variable{0}), 1.0});
    CHECK(check(m, values).empty());
    CHECK(objective_value(m, values) == objective_value(r.left(), std::vector{r.left().lower(variable{0}), 1.0}));

    model integers;
    for (int i = 0; i < 2; ++i)
        integers.add_variable(0.0, 10.0, domain::integer);
    integers.add_row(2 * x + 3 * y == 12);
    CHECK(run(integers, doubleton_equations{}).found == verdict::unchanged);
    integers.add_row(x - 2 * y == 0);
    CHECK(run(integers, doubleton_equations{}).left().variables() == 1);

    auto opposite = with_binaries(2);
    opposite.add_row(x + y == 0);
    opposite.add_row(x + y <= 1);
    const auto zero = run(opposite, doubleton_equations{});
    for (std::size_t i = 0; i < zero.left().rows(); ++i)
        CHECK(zero.left().row_upper(row{i}) >= 0.0);
    CHECK(check(opposite, zero.result.restore(std::vector<double>(zero.left().variables(), 0.0))).empty());
}

TEST_CASE("a column that its rows keep within its bounds goes with an equation") {
    auto m = with_reals(3, 0.0, 2.0);
    m.set_bounds(x, 0.0, 10.0);
    m.set_objective(x + y);
    m.add_row(x - y - 2 * z == 1);
    m.add_row(x + y + z <= 6);
    const auto r = run(m, free_columns{});
    REQUIRE((!r.result.find(x) && r.left().rows() == 1 && r.left().variables() == 2));
    CHECK(r.row_is(0, -infinity, 5.0));
    const std::vector<double> point{1.0, 0.5};
    const auto values = r.result.restore(point);
    CHECK(values == std::vector{3.0, 1.0, 0.5});
    CHECK(check(m, values).empty());
    CHECK(objective_value(m, values) == objective_value(r.left(), point));

    m.set_bounds(x, 0.0, 6.0);
    CHECK_FALSE(run(m, free_columns{}).result.find(x));
    auto bounded = with_reals(3, 0.0, 2.0);
    bounded.add_row(x - y - 2 * z == 1);
    bounded.add_row(x + y + z <= 6);
    CHECK(run(bounded, free_columns{}).result.find(x));
}

TEST_CASE("a column whose bound depends on an integer stays, whatever equation it is in") {
    auto m = with_reals(2);
    const auto open = m.add_binary();
    m.set_bounds(y, 0.0, 8.0);
    m.add_row(x - y == 1);
    m.add_row(x - 10 * open <= 0);
    CHECK(run(m, free_columns{}).result.find(x));
    auto without = with_reals(3);
    without.set_bounds(y, 0.0, 8.0);
    without.add_row(x - y == 1);
    without.add_row(x - z <= 0);
    CHECK_FALSE(run(without, free_columns{}).result.find(x));
}

TEST_CASE("the one row that keeps a column from what it wants is tight") {
    auto m = with_reals(3, 0.0, 10.0);
    m.set_objective(1.0 * z);
    m.add_row(y - x >= 2);
    m.add_row(y + z >= 3);
    CHECK(run(m, tight_rows{}).row_is(0, 2.0, 2.0));
    m.set_bounds(x, 0.0, 7.0);
    CHECK(run(m, tight_rows{}).row_is(0, 2.0, infinity));
    m.set_bounds(x, 0.0, 10.0);
    m.add_row(x - z <= 1);
    CHECK(run(m, tight_rows{}).row_is(0, 2.0, infinity));

    auto binaries = with_binaries(3);
    binaries.set_objective(1.0 * z);
    binaries.add_row(x - y <= 0);
    binaries.add_row(x + z >= 1);
    binaries.add_row(y - z <= 0);
    CHECK(run(binaries, tight_rows{}).row_is(0, 0.0, 0.0));
    auto halves = with_binaries(3);
    halves.set_objective(1.0 * z);
    halves.add_row(2 * x - 3 * y <= 0);
    halves.add_row(x + z >= 1);
    halves.add_row(y - z <= 0);
    CHECK(run(halves, tight_rows{}).left().row_lower(row{0}) == -infinity);
}

TEST_CASE("coefficients that are a little off a multiple aren't multiples") {
    for (const double other : {0.5, 1e12 - 1.0}) {
        CAPTURE(other);
        model m;
        m.add_variable(-1.0, 0.0, domain::integer);
        m.add_binary();
        m.add_row(1e12 * x + other * y <= 0);
        m.set_objective(-1.0 * x - 100 * y); // least at (-1, 1), where the row isn't tight
        CHECK(run(m, tight_rows{}).found == verdict::unchanged);
    }
    model columns;
    columns.add_binary();
    columns.add_binary();
    columns.add_row(1e12 * x + (1e12 + 1.0) * y <= 1e12);
    columns.set_objective(-1.0 * x - 1.0 * y);
    CHECK(run(columns, duplicate_columns{}).found == verdict::unchanged);
}

TEST_CASE("multiples of a row go") {
    auto m = with_reals(2);
    m.add_row(x + 2 * y <= 10);
    m.add_row(-12 <= -2 * x - 4 * y);
    m.add_row(x + 3 * y <= 10);
    m.add_row(3 * x + 6 * y >= 3);
    const auto r = run(m, duplicate_rows{});
    CHECK((r.left().rows() == 3 && r.row_is(0, -infinity, 6.0)));
    CHECK(run(r.left(), duplicate_rows{}).row_is(0, 1.0, 6.0));
    m.add_row(x + 3 * y >= 11);
    CHECK(run(m, duplicate_rows{}).found == verdict::infeasible);
}

TEST_CASE("multiples of a column become one, if every value of their sum can be had") {
    auto m = with_reals(2);
    m.set_objective(x + 2 * y);
    m.add_row(x + 2 * y >= 7);
    const auto r = run(m, duplicate_columns{});
    REQUIRE((r.left().variables() == 1 && r.column_is(0, 0.0, 30.0)));
    for (const double sum : {0.0, 7.5, 29.0, 30.0}) {
        const auto values = r.result.restore(std::vector{sum});
        CHECK((values[0] + 2 * values[1] == doctest::Approx(sum) && values[0] <= 10.0 && values[1] <= 10.0));
        CHECK(r.result.project(values) == std::vector{sum});
    }
    CHECK_FALSE(r.result.find(x));

    model integers;
    integers.add_variable(0.0, 1.0, domain::integer);
    integers.add_variable(0.0, 4.0, domain::integer);
    integers.add_row(x + 2 * y >= 3);
    integers.set_objective(x + 2 * y);
    const auto pair = run(integers, duplicate_columns{});
    REQUIRE((pair.left().variables() == 1 && pair.column_is(0, 0.0, 9.0)));
    for (double sum = 0.0; sum <= 9.0; ++sum) {
        const auto values = pair.result.restore(std::vector{sum});
        CHECK((values[0] + 2 * values[1] == sum && (values[0] == 0.0 || values[0] == 1.0)));
    }
    model gaps;
    gaps.add_binary();
    gaps.add_binary();
    gaps.add_row(x + 3 * y >= 1);
    gaps.set_objective(x + 3 * y);
    CHECK(run(gaps, duplicate_columns{}).found == verdict::unchanged);
}

TEST_CASE("coefficients shrink to what the row needs") {
    auto m = with_binaries(3);
    m.add_row(3 * x + 2 * y + 2 * z <= 6);
    m.add_row(-4 * x + y + z >= -2);
    const auto r = run(m, coefficient_tightening{});
    for (int bits = 0; bits < 8; ++bits) {
        const std::vector<double> point{bits & 1 ? 1.0 : 0.0, bits & 2 ? 1.0 : 0.0, bits & 4 ? 1.0 : 0.0};
        CHECK(check(m, point).empty() == check(r.left(), point).empty());
    }
    CHECK((r.terms(0).front().coefficient == 1.0 && r.left().row_upper(row{0}) == 2.0));
    CHECK(r.terms(1).front().coefficient == -2.0);
    CHECK(r.found == verdict::applied);
}

TEST_CASE("a dominated column stays at its bound") {
    auto m = with_reals(2, 0.0, infinity);
    m.set_objective(x + 2 * y);
    m.add_row(2 * x + y >= 4);
    m.add_row(x + y <= 9);
    CHECK(run(m, dominated_columns{}).result.find(x));
    CHECK_FALSE(run(m, dominated_columns{}).result.find(y));
    m.set_objective(2 * x + y);
    CHECK(run(m, dominated_columns{}).found == verdict::unchanged);
    m.set_objective(x + 2 * y);
    m.set_domain(x, domain::integer);
    CHECK(run(m, dominated_columns{}).result.find(y));
    m.set_domain(y, domain::integer);
    CHECK_FALSE(run(m, dominated_columns{}).result.find(y));
    m.set_bounds(x, 0.0, 2.0);
    CHECK(run(m, dominated_columns{}).result.find(y));
}

TEST_CASE("probing fixes, joins, bounds, and shrinks big-M coefficients") {
    auto m = with_binaries(3);
    m.add_row(x + y >= 1);
    m.add_row(x - y >= 0);
    CHECK_FALSE(run(m, probing{}).result.find(x));

    auto joined = with_binaries(3);
    joined.add_row(x + y + z == 1);
    joined.add_row(x + y - z >= 0);
    joined.add_row(x - y + z <= 1);
    const auto r = run(joined, probing{});
    CHECK(r.left().variables() < 3);

    model big;
    big.add_variable(0.0, 100.0);
    big.add_variable(0.0, 100.0);
    big.add_binary();
    big.add_row(x - y + 1000 * z >= 3);
    big.add_row(y - x - 40 * z >= -35);
    const auto tight = run(big, probing{});
    REQUIRE(tight.left().rows() == 2);
    CHECK(tight.terms(0).back().coefficient < 103.5);
    CHECK(tight.terms(0).back().coefficient > 0.0);
}

TEST_CASE("a clique doesn't grow by the complement of one of its literals") {
    auto m = with_binaries(5);
    m.add_row(y + z - x <= 0);
    m.add_row(x + y <= 1);
    m.add_row(x + z <= 1);
    for (const variable other : {variable{3}, variable{4}}) // the members' neighbours are those of y
        m.add_row(other - x <= 0);
    const auto r = run(m, clique_merging{});
    const std::vector<double> only_x{1.0, 0.0, 0.0, 0.0, 0.0};
    CHECK(check(r.left(), r.result.project(only_x)).empty());
}

TEST_CASE("cliques grow over others, and equations make literals false") {
    auto m = with_binaries(4);
    const variable w{3};
    m.add_row(x + y <= 1);
    m.add_row(y + z <= 1);
    m.add_row(2 * x + 2 * z <= 3);
    m.add_row(z - w <= 0);
    const auto r = run(m, clique_merging{});
    CHECK(r.left().rows() == 2);
    CHECK(r.terms(0).size() + r.terms(1).size() == 5);

    auto exactly = with_binaries(3);
    exactly.add_row(x + y == 1);
    exactly.add_row(x + z <= 1);
    exactly.add_row(y + z <= 1);
    CHECK_FALSE(run(exactly, clique_merging{}).result.find(z));
}
