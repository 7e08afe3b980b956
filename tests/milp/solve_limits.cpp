#include "oracle/milp_models.hpp"
#include "oracle/random_cases.hpp"
#include <optpipe/core/contract.hpp>
#include <optpipe/core/random.hpp>
#include <optpipe/milp/check.hpp>
#include <optpipe/milp/solve.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <stop_token>
#include <thread>
#include <vector>

using namespace optpipe::milp;

namespace {

/// The limit that ended it, if one did.
std::optional<limit> limit_of(const result& r) {
    const auto* s = std::get_if<stopped>(&r.why);
    return s != nullptr ? std::optional{s->why} : std::nullopt;
}

/// Every third of many items in two knapsacks of incommensurable weights: far from easy.
model hard() {
    constexpr std::size_t items = 60;
    model m;
    expression first, second, worth;
    for (std::size_t k = 0; k < items; ++k) {
        const auto x = m.add_binary();
        const auto a = static_cast<double>((k * 7919 + 13) % 997 + 500);
        const auto b = static_cast<double>((k * 6007 + 71) % 991 + 500);
        first += a * x;
        second += b * x;
        worth += (a + b) * x;
    }
    m.add_row(first <= 20011.0);
    m.add_row(second <= 19997.0);
    m.set_objective(worth, sense::maximize);
    return m;
}

/// A few items in two knapsacks.
model random_knapsacks(std::uint64_t seed) {
    optpipe::random_numbers random{seed};
    model m;
    expression first, second, worth;
    const auto items = 12 + random.below(10);
    double sum = 0.0;
    for (std::size_t k = 0; k < items; ++k) {
        const auto x = m.add_variable(0.0, k % 5 == 0 ? 3.0 : 1.0, domain::integer);
        const auto weight = static_cast<double>(5 + random.below(40));
        first += weight * x;
        second += static_cast<double>(5 + random.below(40)) * x;
        worth += (weight + static_cast<double>(random.below(12))) * x;
        sum += weight;
    }
    m.add_row(first <= std::floor(0.4 * sum));
    m.add_row(second <= std::floor(0.45 * sum));
    m.set_objective(worth, sense::maximize);
    return m;
}
/// The objective without its offset.
expression objective_of(const model& m) {
    expression sum;
    for (const variable x : m.all_variables())
        sum += m.cost(x) * x;
    return sum;
}

/// The properties of an interrupted search that must still hold.
void check_partial(const model& m, const result& r) {
    CHECK(r.bound >= r.objective);
    if (r.incumbent) CHECK(check(m, *r.incumbent).empty());
}

} // namespace

TEST_CASE("limits are named, and what is known by then is right") {
    const auto m = hard();
    solve_options options;
    SUBCASE("nodes") {
        options.node_limit = 3;
        const auto r = solve(m, options);
        CHECK(limit_of(r) == limit::nodes);
        CHECK(r.stats.nodes <= 4);
        check_partial(m, r);
    }
    SUBCASE("time") {
        options.time_limit = std::chrono::milliseconds{30};
        const auto r = solve(m, options);
        CHECK(limit_of(r) == limit::time);
        check_partial(m, r);
    }
    SUBCASE("no time at all") {
        options.time_limit = std::chrono::seconds{0};
        CHECK(limit_of(solve(m, options)) == limit::time);
    }
    SUBCASE("memory") {
        options.memory_limit = 4096;
        const auto r = solve(m, options);
        CHECK(limit_of(r) == limit::memory);
        check_partial(m, r);
    }
    SUBCASE("a gap") {
        options.relative_gap = 0.05;
        const auto r = solve(m, options);
        CHECK(status_of(r.why) == "optimal");
        CHECK(relative_gap(r.objective, r.bound) <= 0.05 + 1e-9);
        REQUIRE(r.incumbent.has_value());
        CHECK(check(m, *r.incumbent).empty());
    }
}

TEST_CASE("within a gap, the bound is still one of all points") {
    const auto models = oracle::random_cases(40);
    for (std::uint64_t seed = 1; seed <= models; ++seed) {
        CAPTURE(seed);
        auto m = random_knapsacks(seed);
        const auto exact = solve(m);
        REQUIRE(status_of(exact.why) == "optimal");
        for (const double offset : {0.0, 1e5, -exact.objective, 3.0 - exact.objective})
            for (const double gap : {0.001, 0.003, 0.02, 0.1})
                for (const std::size_t threads : {1U, 2U}) {
                    CAPTURE(offset);
                    CAPTURE(gap);
                    m.set_objective(objective_of(m) + offset, sense::maximize);
                    double least = infinity;
                    solve_options options;
                    options.relative_gap = gap;
                    options.threads = threads;
                    options.on_progress = [&](const progress& p, solution_sink&) { least = std::min(least, p.bound); };
                    const auto r = solve(m, options);
                    REQUIRE(status_of(r.why) == "optimal");
                    const double optimum = exact.objective + offset;
                    const double slack = 1e-6 * std::max(1.0, std::abs(exact.objective));
                    CHECK(r.bound >= optimum - slack);
                    CHECK(least >= optimum - slack);
                    CHECK(r.objective <= optimum + slack);
                    CHECK(r.bound - r.objective <= gap * std::abs(r.objective) + slack);
                }
    }
}

TEST_CASE("where the relaxation is unbounded, limits are named too") {
    // Infinitely many points to try, hardly any of which solves the equation.
    model m;
    expression sum;
    for (const double c : {-1.77, -1.08, -9.2, 8.1})
        sum += c * m.add_variable(-infinity, infinity, domain::integer);
    m.add_row(sum == -259.33);
    m.set_objective(0.5 * variable{0} - 7.7 * variable{1});
    solve_options options;
    SUBCASE("time") {
        options.time_limit = std::chrono::milliseconds{200};
        CHECK(limit_of(solve(m, options)) == limit::time);
    }
    SUBCASE("nodes") {
        options.node_limit = 5;
        const auto r = solve(m, options);
        CHECK(limit_of(r) == limit::nodes);
        CHECK(r.stats.nodes > 0);
    }
    SUBCASE("a stop request") {
        std::stop_source source;
        options.stop = source.get_token();
        const std::jthread stopper{[&] {
            std::this_thread::sleep_for(std::chrono::milliseconds{100});
            source.request_stop();
        }};
        CHECK(limit_of(solve(m, options)) == limit::stop_requested);
    }
}

TEST_CASE("more threads than there are cores cost nothing") {
    auto options = solve_options{};
    options.threads = 4'000'000'000;
    options.node_limit = 20;
    check_partial(hard(), solve(hard(), options));
}

TEST_CASE("a stop request ends the search, before and while it runs") {
    const auto m = hard();
    std::stop_source source;
    solve_options options;
    options.stop = source.get_token();
    SUBCASE("before") { source.request_stop(); }
    SUBCASE("while") {
        options.on_progress = [&](const progress&, solution_sink&) { source.request_stop(); };
    }
    const auto r = solve(m, options);
    CHECK(limit_of(r) == limit::stop_requested);
    check_partial(m, r);
}

TEST_CASE("nothing to decide") {
    SUBCASE("an empty model") {
        model m;
        m.set_offset(7.0);
        const auto r = solve(m);
        CHECK(std::holds_alternative<optimal>(r.why));
        CHECK(r.objective == 7.0);
        CHECK(r.bound == 7.0);
        CHECK(r.incumbent == std::vector<double>{});
    }
    SUBCASE("no rows") {
        model m;
        const auto x = m.add_variable(-2.5, 2.5, domain::integer);
        const auto y = m.add_variable(-infinity, infinity);
        m.set_objective(3.0 * x + 0.0 * y, sense::maximize);
        const auto r = solve(m);
        CHECK(std::holds_alternative<optimal>(r.why));
        CHECK(r.objective == 6.0);
    }
    SUBCASE("only fixed columns") {
        model m;
        const auto x = m.add_variable(3.0, 3.0, domain::integer);
        m.add_row(1.0 * x <= 4.0);
        m.set_objective(2.0 * x);
        CHECK(solve(m).objective == 6.0);
    }
    SUBCASE("free rows and free columns") {
        model m;
        const auto x = m.add_variable(-infinity, infinity);
        const auto n = m.add_variable(-infinity, infinity, domain::integer);
        m.add_row(-infinity, {{x, 1.0}, {n, 5.0}}, infinity);
        m.add_row(x - n == 0.5);
        m.add_row(x + n >= 3.0);
        m.set_objective(x + n);
        const auto r = solve(m);
        CHECK(std::holds_alternative<optimal>(r.why));
        CHECK(r.objective == doctest::Approx(4.5));
    }
}

TEST_CASE("no solution, and no best one") {
    for (const bool presolve : {true, false}) {
        CAPTURE(presolve);
        solve_options options;
        options.presolve = presolve;
        SUBCASE("bounds that cross") {
            model m;
            static_cast<void>(m.add_variable(2.0, 1.0));
            CHECK(std::holds_alternative<infeasible>(solve(m, options).why));
        }
        SUBCASE("an integer between whole numbers") {
            model m;
            const auto x = m.add_variable(0.2, 0.8, domain::integer);
            m.set_objective(1.0 * x);
            CHECK(std::holds_alternative<infeasible>(solve(m, options).why));
        }
        SUBCASE("a row without terms") {
            model m;
            m.add_row(1.0, {}, 2.0);
            CHECK(std::holds_alternative<infeasible>(solve(m, options).why));
        }
        SUBCASE("parity") {
            model m;
            const auto x = m.add_variable(-1000.0, 1000.0, domain::integer);
            const auto y = m.add_variable(-1000.0, 1000.0, domain::integer);
            m.add_row(2.0 * x + 4.0 * y == 7.0);
            CHECK(std::holds_alternative<infeasible>(solve(m, options).why));
        }
        SUBCASE("an unbounded integer") {
            model m;
            const auto x = m.add_variable(0.0, infinity, domain::integer);
            const auto y = m.add_variable(0.0, infinity);
            m.add_row(x - y <= 3.0);
            m.set_objective(x + y, sense::maximize);
            const auto r = solve(m, options);
            CHECK(std::holds_alternative<unbounded>(r.why));
            CHECK(r.bound == infinity);
        }
        SUBCASE("an unbounded relaxation, but no solution") {
            model m;
            const auto x = m.add_variable(0.0, infinity);
            const auto n = m.add_variable(0.0, 5.0, domain::integer);
            m.add_row(2.0 * n == 3.0);
            m.set_objective(x, sense::maximize);
            CHECK(std::holds_alternative<infeasible>(solve(m, options).why));
        }
    }
}

TEST_CASE("numbers far apart") {
    // big M, and coefficients from 1e-6 to 1e8
    for (const double big : {1e3, 1e6, 1e8}) {
        CAPTURE(big);
        model m;
        const auto open = m.add_binary();
        const auto flow = m.add_variable(0.0, infinity);
        const auto tiny = m.add_variable(0.0, 1e6);
        m.add_row(flow - big * open <= 0.0);
        m.add_row(1e-6 * tiny + flow >= 10.0);
        m.set_objective(100.0 * open + flow + 1e-4 * tiny);
        const auto r = solve(m);
        CHECK(std::holds_alternative<optimal>(r.why));
        // either the switch is paid for, or `tiny` replaces 1 of the 10
        CHECK(r.objective == doctest::Approx(110.0));
        REQUIRE(r.incumbent.has_value());
        CHECK(check(m, *r.incumbent).empty());
    }
}

TEST_CASE("limits that aren't numbers, and both searches off, are refused") {
    if (!optpipe::contracts_throw()) return;
    using seconds = std::chrono::duration<double>;
    constexpr double nan = std::numeric_limits<double>::quiet_NaN();
    const auto solved = [](auto change) {
        solve_options options;
        change(options);
        static_cast<void>(solve(model{}, options));
    };
    CHECK_THROWS_AS(solved([&](solve_options& o) { o.time_limit = seconds{nan}; }), optpipe::contract_error);
    CHECK_THROWS_AS(solved([&](solve_options& o) { o.progress_interval = seconds{nan}; }), optpipe::contract_error);
    CHECK_THROWS_AS(solved([&](solve_options& o) { o.conflict_search = o.tree_search = false; }),
                    optpipe::contract_error);
    CHECK_NOTHROW(solved([](solve_options&) {}));
}
