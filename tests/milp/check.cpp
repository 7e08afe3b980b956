#include <optpipe/milp/check.hpp>

#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <vector>

using namespace optpipe::milp;

namespace {

struct example {
    model m;
    variable x = m.add_variable(-1.0, 4.0, domain::continuous, "x");
    variable n = m.add_variable(0.0, infinity, domain::integer, "n");
    row sum = m.add_row(1.0 <= x + n <= 5.0, "sum");
    row equal = m.add_row(2.0 * x - n == 0.0, "equal");
    row free = m.add_row(-infinity, {{x, 1.0}}, infinity);

    [[nodiscard]] auto check(double at_x, double at_n, double slack = 1e-6) const {
        return optpipe::milp::check(m, std::vector{at_x, at_n}, {slack});
    }
};

constexpr double not_a_number = std::numeric_limits<double>::quiet_NaN();

} // namespace

TEST_CASE("a feasible point violates nothing") {
    const example e;
    CHECK(e.check(1.0, 2.0).empty());
    CHECK(e.check(0.5, 1.0).empty());
    CHECK(e.check(0.5 + 1e-7, 1.0 - 1e-7).empty());
}

TEST_CASE("each kind of violation is found, with its amount") {
    const example e;
    const auto has = [](const std::vector<infeasibility>& found, infeasibility_kind kind, std::size_t at,
                        double amount) {
        for (const auto& f : found)
            if (f.kind == kind && f.position == at && f.amount == doctest::Approx(amount)) return true;
        return false;
    };
    CHECK(has(e.check(-1.5, 2.0), infeasibility_kind::bounds, 0, 0.5));
    CHECK(has(e.check(4.25, 2.0), infeasibility_kind::bounds, 0, 0.25));
    CHECK(has(e.check(1.0, -2.0), infeasibility_kind::bounds, 1, 2.0));
    CHECK(has(e.check(0.75, 1.5), infeasibility_kind::integrality, 1, 0.5));
    CHECK(has(e.check(1.0, 1.9), infeasibility_kind::integrality, 1, 0.1));
    CHECK(has(e.check(2.0, 4.0), infeasibility_kind::rows, 0, 1.0));
    CHECK(has(e.check(0.0, 0.0), infeasibility_kind::rows, 0, 1.0));
    CHECK(has(e.check(1.0, 3.0), infeasibility_kind::rows, 1, 1.0));
    CHECK(e.check(1.0, 3.0).size() == 1);
}

TEST_CASE("tolerances are absolute, whatever the size of bounds and values") {
    model m;
    const auto x = m.add_variable(0.0, infinity);
    m.add_row(-infinity, {{x, 1.0}}, 1e6);
    const auto y = m.add_variable(0.0, 1.0);
    m.add_row(-infinity, {{x, 1.0}, {y, -1e6}}, 0.0);
    CHECK(check(m, std::vector{1e6, 1.0}, {1e-6}).empty());
    CHECK(check(m, std::vector{1e6 + 5e-7, 1.0}, {1e-6}).empty());
    CHECK(check(m, std::vector{1e6 + 2e-6, 1.0}, {1e-6}).size() == 2);
    m.set_domain(x, domain::integer);
    CHECK(check(m, std::vector{1e6 - 0.25, 1.0}, {1e-6}).size() == 1);
}

TEST_CASE("bounds of integers that doubles tell apart have no slack") {
    for (const double bound : {10.0, 1e10, 253908334114344.0, 0x1p53 - 2.0}) {
        CAPTURE(bound);
        model m;
        m.add_variable(-bound, bound, domain::integer);
        CHECK(check(m, std::vector{bound}).empty());
        CHECK(check(m, std::vector{bound + 1.0}).size() == 1);
        CHECK(check(m, std::vector{-bound - 1.0}).size() == 1);
    }
}

TEST_CASE("what no double can tell apart violates nothing") {
    model m;
    const auto x = m.add_variable(0.0, 1.0);
    m.add_row(1e15 * x == 1e14);
    CHECK(check(m, std::vector{0.1}).empty());
    CHECK(check(m, std::vector{0.1 + 1e-13}).size() == 1);
}

TEST_CASE("rows are checked with integers rounded") {
    model m;
    const auto x = m.add_binary();
    const auto y = m.add_variable(0.0, 10.0);
    m.add_row(y - 1e6 * x <= 0.0);
    CHECK(check(m, std::vector{1e-7, 0.0}).empty());
    CHECK(check(m, std::vector{1e-7, 0.05}).size() == 1);
    CHECK(check(m, std::vector{1.0 - 1e-7, 10.0}).empty());
}

TEST_CASE("a row of whole numbers is satisfied exactly, or not at all") {
    model m;
    const auto x = m.add_variable(0.0, infinity, domain::integer), y = m.add_variable(0.0, infinity, domain::integer);
    m.add_row(2e9 * x + 3.0 * y == 6000000000001.0);
    CHECK(check(m, std::vector{3000.0, 0.0}).size() == 1);
    CHECK(check(m, std::vector{2999.0, 666666667.0}).empty());
    model side; // rounded to what integers can reach
    const auto z = side.add_variable(0.0, infinity, domain::integer);
    side.add_row(-infinity, {{z, 1.0}}, 4.5);
    side.add_row(2.0000005, {{z, 1.0}}, infinity);
    CHECK(check(side, std::vector{4.0}).empty());
    CHECK(check(side, std::vector{5.0}).size() == 1);
    CHECK(check(side, std::vector{2.0}).empty());
}

TEST_CASE("neither infinity nor NaN is a value") {
    const example e;
    CHECK_FALSE(e.check(not_a_number, 1.0).empty());
    CHECK_FALSE(e.check(0.5, not_a_number).empty());
    model m;
    m.add_variable(-infinity, infinity);
    CHECK(check(m, std::vector{0.0}).empty());
    CHECK(check(m, std::vector{infinity}).size() == 1);
    CHECK(check(m, std::vector{not_a_number}).size() == 1);
}

TEST_CASE("a row whose terms overflow accepts nothing") {
    model m;
    const auto x = m.add_variable(-infinity, infinity);
    const auto y = m.add_variable(-infinity, infinity);
    const auto z = m.add_variable(0.0, 9.0);
    m.add_row(-infinity, {{x, 1e200}, {y, -1e200}, {z, 1.0}}, 1.0);
    CHECK(check(m, std::vector{1e200, 1e200, 5.0}).size() == 1);
}

TEST_CASE("bounds that exclude each other let nothing through") {
    model m;
    const auto x = m.add_variable(0.0, 4.0);
    m.add_row(3.0, {{x, 1.0}}, 1.0);
    for (const double at : {0.0, 1.0, 2.0, 3.0, 4.0})
        CHECK(check(m, std::vector{at}).size() == 1);
}

TEST_CASE("the objective is computed in the model's direction, with its offset") {
    model m;
    const auto x = m.add_variable(0.0, 9.0);
    const auto y = m.add_variable(0.0, 9.0);
    m.set_objective(3.0 * x - y + 10.0, sense::maximize);
    CHECK(objective_value(m, std::vector{2.0, 4.0}) == 12.0);
    m.set_objective(1e16 * x + y - 1e16);
    CHECK(objective_value(m, std::vector{1.0, 1.0}) == 1.0);
}

TEST_CASE("violations are described by name") {
    const example e;
    CHECK(describe(e.m, e.check(1.0, 3.0).front()) == "equal: is -1, which is 1 outside of its bounds");
    CHECK(describe(e.m, e.check(0.75, 1.5).front()) == "n: is 1.5, which is 0.5 from an integer");
    CHECK(describe(e.m, e.check(-1.5, 2.0).front()) == "x: is -1.5, which is 0.5 outside of its bounds");
}
