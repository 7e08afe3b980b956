#include <optpipe/milp/lp/certificate.hpp>
#include <optpipe/milp/lp/solution.hpp>

#include <doctest/doctest.h>

#include <limits>
#include <utility>
#include <vector>

using namespace optpipe::milp;

namespace {

constexpr double unlimited = std::numeric_limits<double>::infinity();

/// minimize x + y with 1 <= x + y <= 4 and x - y = 0, x and y from 0 to `upper`
linear_program square(double upper) {
    linear_program p;
    p.cost = {1.0, 1.0};
    p.column_lower = {0.0, 0.0};
    p.column_upper = {upper, upper};
    p.row_lower = {1.0, 0.0};
    p.row_upper = {4.0, 0.0};
    const std::vector<Eigen::Triplet<double>> entries{{0, 0, 1.0}, {0, 1, 1.0}, {1, 0, 1.0}, {1, 1, -1.0}};
    p.matrix.resize(2, 2);
    p.matrix.setFromTriplets(entries.begin(), entries.end());
    return p;
}

using numbers = std::vector<double>;

} // namespace

TEST_CASE("the Lagrangian bound of any multipliers") {
    const auto p = square(3.0);
    CHECK(safe_dual_bound(p, numbers{0.0, 0.0}) == doctest::Approx(0.0));
    CHECK(safe_dual_bound(p, numbers{1.0, 0.0}) == doctest::Approx(1.0));
    CHECK(safe_dual_bound(p, numbers{1.0, 0.0}) <= 1.0);
    CHECK(safe_dual_bound(p, numbers{0.5, 7.0}) == doctest::Approx(0.5 - 6.5 * 3.0));
    CHECK(safe_dual_bound(p, numbers{2.0, 0.0}) == doctest::Approx(2.0 - 3.0 - 3.0));
    CHECK(safe_dual_bound(p, numbers{-1.0, 0.0}) == doctest::Approx(-4.0));
}

TEST_CASE("without bounds, a wrong multiplier proves nothing, and a rounded one what it should") {
    const auto p = square(unlimited);
    CHECK(safe_dual_bound(p, numbers{2.0, 0.0}) == -unlimited);
    CHECK(safe_dual_bound(p, numbers{1.0 + 1e-13, 1e-13}) == doctest::Approx(1.0));
    CHECK(safe_dual_bound(p, numbers{1.0 + 1e-6, 0.0}) == -unlimited);
}

TEST_CASE("multipliers of rows without a bound on that side are left out") {
    auto p = square(3.0);
    p.row_upper[0] = unlimited;
    CHECK(safe_dual_bound(p, numbers{-1.0, 0.0}) == doctest::Approx(0.0));
}

TEST_CASE("rounding never makes a bound too high") {
    std::size_t naively_too_high = 0;
    for (int n = 1; n < 100; ++n) {
        linear_program p;
        double naive = 0.0;
        long double exact = 0.0L;
        for (int j = 0; j < 50 + n; ++j) {
            p.cost.push_back(static_cast<double>(n) / 7.0);
            p.column_lower.push_back(1.0);
            p.column_upper.push_back(2.0);
            naive += p.cost.back();
            exact += static_cast<long double>(p.cost.back());
        }
        p.matrix.resize(0, 50 + n);
        const double bound = safe_dual_bound(p, {});
        naively_too_high += naive > exact ? 1U : 0U;
        CHECK(bound <= exact);
        CHECK(bound > exact * (1.0L - 1e-10L));
    }
    CHECK(naively_too_high > 10);
}

TEST_CASE("Farkas multipliers") {
    auto p = square(3.0);
    p.row_lower[0] = 6.5;
    p.row_upper[0] = 8.0;
    CHECK(verify_infeasible(p, numbers{1.0, 0.0}, 1e-9));
    CHECK(verify_infeasible(p, numbers{1e-3, 0.0}, 1e-9));
    CHECK(verify_infeasible(p, numbers{1.0, 0.01}, 1e-9));
    CHECK_FALSE(verify_infeasible(p, numbers{-1.0, 0.0}, 1e-9));
    CHECK_FALSE(verify_infeasible(p, numbers{1.0, 2.0}, 1e-9));
    CHECK_FALSE(verify_infeasible(p, numbers{0.0, 0.0}, 1e-9));
    CHECK_FALSE(verify_infeasible(p, numbers{1.0}, 1e-9));
    CHECK_FALSE(verify_infeasible(p, numbers{std::numeric_limits<double>::quiet_NaN(), 0.0}, 1e-9));
    CHECK_FALSE(verify_infeasible(p, numbers{unlimited, 0.0}, 1e-9));

    // Feasible by a hair, infeasible by a hair
    p.row_lower[0] = 6.0;
    CHECK_FALSE(verify_infeasible(p, numbers{1.0, 0.0}, 1e-9));
    p.row_lower[0] = 6.0 + 1e-10;
    CHECK_FALSE(verify_infeasible(p, numbers{1.0, 0.0}, 1e-9));
    p.row_lower[0] = 6.0 + 1e-7;
    CHECK(verify_infeasible(p, numbers{1.0, 0.0}, 1e-9));
}

TEST_CASE("bounds that cross need no multipliers") {
    auto p = square(3.0);
    p.column_lower[1] = 4.0;
    CHECK(verify_infeasible(p, numbers{0.0, 0.0}, 1e-9));
    p = square(3.0);
    p.row_lower[1] = 1.0;
    CHECK(verify_infeasible(p, numbers{0.0, 0.0}, 1e-9));
}

TEST_CASE("directions of unboundedness") {
    auto p = square(unlimited);
    p.cost = {-1.0, 0.5};
    CHECK_FALSE(verify_unbounded(p, numbers{1.0, 1.0}, 1e-9));
    p.row_upper[0] = unlimited;
    CHECK(verify_unbounded(p, numbers{1.0, 1.0}, 1e-9));
    CHECK(verify_unbounded(p, numbers{1e6, 1e6}, 1e-9));
    CHECK_FALSE(verify_unbounded(p, numbers{-1.0, -1.0}, 1e-9));
    CHECK_FALSE(verify_unbounded(p, numbers{1.0, 0.5}, 1e-9));
    CHECK_FALSE(verify_unbounded(p, numbers{0.0, 0.0}, 1e-9));
    CHECK_FALSE(verify_unbounded(p, numbers{1.0}, 1e-9));
    CHECK_FALSE(verify_unbounded(p, numbers{std::numeric_limits<double>::quiet_NaN(), 1.0}, 1e-9));
    p.column_upper[1] = 1e9;
    CHECK_FALSE(verify_unbounded(p, numbers{1.0, 1.0}, 1e-9));
    p.column_upper[1] = unlimited;
    p.cost = {-1.0, 1.0};
    CHECK_FALSE(verify_unbounded(p, numbers{1.0, 1.0}, 1e-9));
}

TEST_CASE("a slow move towards a bound ends a direction") {
    auto p = square(unlimited);
    p.cost = {0.0, -1.0};
    p.matrix.coeffRef(0, 0) = 1e6;
    p.matrix.coeffRef(0, 1) = 1e-6;
    p.row_lower[1] = -unlimited;
    p.row_upper[1] = unlimited;
    // 1e6 x + 1e-6 y ≤ 4 with x ≥ 0. The row ends y, but not a move in which x falls by 1e-12.
    CHECK_FALSE(verify_unbounded(p, std::vector{-1e-12, 1.0}, 1e-9));
}

TEST_CASE("sums that overflow prove nothing") {
    auto p = square(unlimited);
    p.cost = {-1.0, 0.0};
    p.column_lower[0] = -unlimited;
    p.matrix.coeffRef(0, 0) = 1e200;
    p.row_lower = {-unlimited, -unlimited};
    p.row_upper[1] = unlimited;
    // The row ends the move; its rate is infinite.
    CHECK_FALSE(verify_unbounded(p, numbers{1e200, 0.0}, 1e-9));
    CHECK_FALSE(verify_unbounded(p, numbers{1.0, 0.0}, 1e-9));

    p = square(3.0);
    p.matrix.coeffRef(0, 0) = 1e200;
    p.column_upper[0] = -1.0;
    p.column_lower[0] = -2.0;
    CHECK_FALSE(verify_infeasible(p, numbers{1e200, 0.0}, 1e-9));
    CHECK(safe_dual_bound(p, numbers{1e200, 0.0}) == -unlimited);
}

TEST_CASE("neither infinity nor NaN is feasible or complementary") {
    constexpr double not_a_number = std::numeric_limits<double>::quiet_NaN();
    auto p = square(unlimited);
    p.row_upper[0] = unlimited;
    const auto is_accepted = [&](const numbers& primal, const numbers& duals) {
        lp::solution s;
        s.primal = primal;
        s.duals = duals;
        lp::complete(p, s);
        return std::pair{lp::is_primal_feasible(p, s, 1e-6), lp::is_dual_feasible(p, s, 1e-6)};
    };
    CHECK(is_accepted({0.5, 0.5}, {1.0, 0.0}) == std::pair{true, true});
    for (const double bad : {unlimited, -unlimited, not_a_number, 1.7e308}) {
        CAPTURE(bad);
        p.cost = {1.0, 1.0};
        CHECK(is_accepted({bad, bad}, {1.0, 0.0}) == std::pair{false, false});
        CHECK_FALSE(is_accepted({0.5, 0.5}, {bad, 0.0}).second);
    }
    p.matrix.resize(2, 2); // no entry says that the multiplier is infinite
    p.row_lower = {0.0, 0.0};
    CHECK_FALSE(is_accepted({0.0, 0.0}, {unlimited, 0.0}).second);
}
