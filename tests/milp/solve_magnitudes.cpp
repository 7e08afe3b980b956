#include <optpipe/core/random.hpp>
#include <optpipe/milp/check.hpp>
#include <optpipe/milp/io/read_mps.hpp>
#include <optpipe/milp/solve.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

using namespace optpipe::milp;

namespace {

result solve_on(const model& m, std::size_t threads, bool presolve = true) {
    solve_options options;
    options.threads = threads;
    options.presolve = presolve;
    return solve(m, options);
}

/// Equations with small coefficients that a small point satisfies; nothing else needs the bounds.
model equations(std::uint64_t seed, double upper, domain kind) {
    optpipe::random_numbers random{seed};
    const auto draw = [&](int low, int high) {
        return static_cast<double>(low) + static_cast<double>(random.below(static_cast<std::size_t>(high - low + 1)));
    };
    model m;
    std::vector<double> point;
    const auto columns = random.between(1, 4);
    for (std::size_t j = 0; j < columns; ++j) {
        m.set_cost(m.add_variable(0.0, upper, kind), draw(0, 3));
        point.push_back(draw(0, 5));
    }
    const auto rows = random.between(1, 2);
    for (std::size_t i = 0; i < rows; ++i) {
        std::vector<term> terms;
        double side = 0.0;
        for (std::size_t j = 0; j < columns; ++j)
            if (random.chance(70)) {
                terms.push_back({variable{j}, random.chance(50) ? draw(1, 9) : -draw(1, 9)});
                side += terms.back().coefficient * point[j];
            }
        m.add_row(side, terms, random.chance(80) ? side : infinity);
    }
    return m;
}

/// Depots that cost something to open; their stock, at most `stock` each, must meet a demand.
struct depots {
    std::vector<double> cost;
    std::vector<double> stock; ///< in multiples of `unit`
    double unit = 1.0;
    double demand = 0.0;

    explicit depots(std::uint64_t seed) {
        optpipe::random_numbers random{seed};
        unit = std::pow(10.0, static_cast<double>(random.below(6)) - 3.0);
        const auto count = random.between(1, 6);
        double sum = 0.0;
        for (std::size_t j = 0; j < count; ++j) {
            cost.push_back(static_cast<double>(1 + random.below(20)));
            stock.push_back(unit * static_cast<double>(1 + random.below(9)));
            sum += stock.back();
        }
        demand = sum * static_cast<double>(1 + random.below(9)) / 9.5;
    }
    /// The switches have coefficients far above any stock, and the rows have any size.
    [[nodiscard]] model with_switches(double big, double scale) const {
        model m;
        expression sent;
        for (std::size_t j = 0; j < cost.size(); ++j) {
            const auto open = m.add_binary();
            m.set_cost(open, cost[j]);
            const auto flow = m.add_variable(0.0, stock[j]);
            m.add_row(scale * flow - scale * big * open <= 0.0);
            sent += flow;
        }
        m.add_row(sent >= demand);
        return m;
    }
    [[nodiscard]] double optimum() const {
        constexpr double rounding = 1e-9;
        double best = infinity;
        for (std::size_t set = 0; set < std::size_t{1} << cost.size(); ++set) {
            double sum = 0.0, price = 0.0;
            for (std::size_t j = 0; j < cost.size(); ++j)
                if ((set >> j & 1U) != 0) {
                    sum += stock[j];
                    price += cost[j];
                }
            if (sum >= demand - rounding * unit) best = std::min(best, price);
        }
        return best;
    }
};

void check_optimum(const model& m, const result& found, double optimum) {
    REQUIRE(status_of(found.why) == "optimal");
    CHECK(found.objective == doctest::Approx(optimum));
    CHECK(check(m, *found.incumbent).empty());
}

} // namespace

TEST_CASE("bounds that are never reached change nothing, whatever their size") {
    constexpr std::uint64_t models = 100;
    MESSAGE("seeds 1 to " << models);
    for (std::uint64_t seed = 1; seed <= models; ++seed)
        for (const auto kind : {domain::continuous, domain::integer}) {
            CAPTURE(seed);
            const auto known = solve_on(equations(seed, 1e3, kind), 1);
            REQUIRE(status_of(known.why) == "optimal");
            for (const double upper : {1e8, 1e10, 1e12, 1e15, 9e15, 1e16, 0x1p63, 9e19, 1e20, infinity}) {
                CAPTURE(upper);
                const auto m = equations(seed, upper, kind);
                check_optimum(m, solve_on(m, 1), known.objective);
            }
        }
}

TEST_CASE("bounds that are reached hold, whatever their size") {
    for (const double upper : {1e3, 1e8, 1e10, 1e12, 1e15})
        for (const bool presolve : {true, false})
            for (const auto kind : {domain::continuous, domain::integer}) {
                CAPTURE(upper);
                CAPTURE(presolve);
                model m;
                const auto x = m.add_variable(0.0, upper, kind), y = m.add_variable(-upper, 5.0, kind);
                m.add_row(x + y <= infinity);
                m.set_objective(x - 2.0 * y, sense::maximize);
                check_optimum(m, solve_on(m, 1, presolve), 3.0 * upper);
            }
}

TEST_CASE("one column and one row, whatever the bound says") {
    for (const double coefficient : {1e2, 1e4, 1e6})
        for (const double upper : {1e7, 1e8, 1e9, 1e10, 1e12}) {
            CAPTURE(coefficient);
            CAPTURE(upper);
            model m;
            const auto x = m.add_variable(0.0, upper);
            m.add_row(coefficient * x == 1.0);
            m.set_objective(x);
            check_optimum(m, solve_on(m, 1), 1.0 / coefficient);
        }
}

TEST_CASE("a binary that a row needs is 1, however large its coefficient") {
    for (const double coefficient : {1e3, 1e5, 1e6, 1e8, 1e10})
        for (const double share : {1.0, 0.5, 1e-3, 1e-6, 1e-7})
            for (const bool presolve : {true, false}) {
                CAPTURE(coefficient);
                CAPTURE(share);
                CAPTURE(presolve);
                if (share * coefficient < 1e-4) continue; // near the tolerance
                model m;
                const auto x = m.add_binary();
                m.set_objective(x);
                m.add_row(coefficient * x >= share * coefficient);
                check_optimum(m, solve_on(m, 1, presolve), 1.0);
                model with_flow;
                const auto open = with_flow.add_binary();
                const auto flow = with_flow.add_variable(-infinity, infinity);
                with_flow.set_objective(open);
                with_flow.add_row(1.0 * flow == share * coefficient);
                with_flow.add_row(flow - coefficient * open <= 0.0);
                check_optimum(with_flow, solve_on(with_flow, 1, presolve), 1.0);
            }
}

TEST_CASE("fixed charges: what looking at every set of open depots says") {
    constexpr std::uint64_t models = 150;
    MESSAGE("seeds 1 to " << models);
    for (std::uint64_t seed = 1; seed <= models; ++seed)
        for (const double big : {1e4, 1e6, 1e8})
            for (const double scale : {1e-3, 1.0, 1e3}) {
                CAPTURE(seed);
                CAPTURE(big);
                CAPTURE(scale);
                const depots d{seed};
                // A flow within the row's tolerance needs no switch.
                if (1e-6 / scale * static_cast<double>(d.cost.size()) > 1e-2 * d.unit) continue;
                const auto m = d.with_switches(big, scale);
                for (const std::size_t threads : {1U, 2U})
                    check_optimum(m, solve_on(m, threads), d.optimum());
            }
}

TEST_CASE("equations of whole numbers have no tolerance") {
    for (const double factor : {2.0, 3.0, 7.0})
        for (const double size : {1e3, 5e6, 1e9, 1e12})
            for (const double off : {0.0, 1.0, factor - 1.0})
                for (const std::size_t threads : {1U, 2U}) {
                    CAPTURE(factor);
                    CAPTURE(size);
                    CAPTURE(off);
                    model m;
                    const auto add = [&] { return m.add_variable(0.0, infinity, domain::integer); };
                    const auto a = add(), b = add(), c = add(), d = add();
                    m.add_row(factor * a - b == 0.0);
                    m.add_row(factor * c - d == 0.0);
                    m.add_row(b + d == factor * size + off);
                    const auto found = solve_on(m, threads);
                    CHECK(status_of(found.why) == (off == 0.0 ? "optimal" : "infeasible"));
                }
}

TEST_CASE("a large side excuses no small coefficient, on any number of threads") {
    const auto m = read_mps(OPTPIPE_SOURCE_DIR "/tests/data/milp/reported/large_side_20545.mps");
    for (const std::size_t threads : {1U, 2U}) {
        CAPTURE(threads);
        check_optimum(m, solve_on(m, threads), -24.4832521);
    }
}

TEST_CASE("a large constant doesn't make the objective less precise") {
    for (const double constant : {0.0, 1e6, 1e8, 1e10})
        for (const bool trees : {true, false}) {
            CAPTURE(constant);
            CAPTURE(trees);
            model m;
            const auto x = m.add_variable(0.0, 11.0, domain::integer);
            const auto level = m.add_variable(0.0, infinity);
            m.add_row(1000.0 * level - 10.0 * x >= constant);
            m.set_objective(1000.0 * level - 17.0 * x - constant);
            solve_options options;
            options.tree_search = trees;
            options.presolve = false;
            check_optimum(m, solve(m, options), -77.0);
        }
}

TEST_CASE("an optimum whose bound doesn't prove it isn't called one") {
    for (const bool presolve : {true, false}) {
        CAPTURE(presolve);
        model m;
        const auto add = [&] { return m.add_variable(0.0, infinity); };
        const auto x = add(), far = add(), idle = add();
        m.set_objective(17.117 * x + 5.0 * far, sense::maximize);
        m.add_row(6865600.0 * x + 1.7e-05 * far + 1e7 * idle <= 1955689364.5129337);
        m.add_row(1e-05 * x - 550000000.0 * far <= -201358475155.03583);
        const auto found = solve_on(m, 1, presolve);
        if (status_of(found.why) == "optimal") CHECK(found.objective == doctest::Approx(575202754268510.0));
        CHECK(found.bound >= 575202754268000.0);
    }
}

TEST_CASE("a model with a point within half of the tolerance isn't called infeasible") {
    for (const bool presolve : {true, false}) {
        CAPTURE(presolve);
        model m;
        const auto x = m.add_variable(0.0, 1e6), y = m.add_variable(0.0, 9.0, domain::integer);
        m.set_objective(3.0 * x + 6.0 * y);
        m.add_row(2.15 * x + 625197.647 * y == 4201641.355069);
        m.add_row(178143.597 * x - 3.0 * y == 89125914372.59373);
        check_optimum(m, solve_on(m, 1, presolve), 1500941.33033);
    }
}

TEST_CASE("large domains: an optimum isn't approached in thousands of tiny steps") {
    model m;
    const auto add = [&](double upper) { return m.add_variable(0.0, upper, domain::integer); };
    const auto few = add(13.0), gain = add(1e4), other = add(1e4), drawn = add(1.0), left = add(1.0), load = add(1e4);
    const auto flow = m.add_variable(0.0, 5.0), extra = m.add_variable(0.0, 11.0);
    m.set_objective(9.0 * gain + 2.0 * other + 9.0 * flow + 5.0 * extra - 6.0 * few - left - 6.0 * drawn - 5.0 * load,
                    sense::maximize);
    m.add_row(2.5 * other + flow - 0.48 * left + 3665.982 * drawn >= 9936.552593);
    m.add_row(3.0 * few - 2.5 * gain + 0.5 * extra + 2.5 * drawn + 3.0 * load >= -79.213213);
    const auto found = solve_on(m, 1);
    check_optimum(m, found, 68570.0);
    CHECK(found.stats.solutions < 2000);
}

TEST_CASE("rounding times a large bound needs no search") {
    for (const double upper : {1e8, 1e10, 1e12}) {
        CAPTURE(upper);
        model m;
        const auto a = m.add_variable(0.0, upper, domain::integer), b = m.add_variable(0.0, upper, domain::integer);
        const auto c = m.add_variable(0.0, 1e3), d = m.add_variable(0.0, 1e3);
        m.set_objective(c + 5.0 * d);
        m.add_row(1.5 * a - 100.0 * b + 3.0 * c + 1.5 * d == -80.5);
        solve_options options;
        options.node_limit = 1000;
        check_optimum(m, solve(m, options), 0.0);
    }
}

TEST_CASE("a model whose solutions are far away isn't called infeasible") {
    model m;
    const auto x = m.add_variable(0.0, infinity), y = m.add_variable(0.0, infinity);
    const auto z = m.add_variable(0.0, 1.0, domain::integer);
    m.set_objective(x + 3.0 * z);
    m.add_row(x - y >= 0.0);
    m.add_row((1.0 + 0x1p-33) * y - x + 0.25 * z >= 1.0); // x = y = 2^33 is exact
    for (const bool presolve : {true, false}) {
        solve_options options;
        options.presolve = presolve;
        CHECK(status_of(solve(m, options).why) != "infeasible");
    }
}

TEST_CASE("a coefficient that is nearly a multiple of another counts fully where its variable is large") {
    model m;
    const auto a = m.add_variable(0.0, 1.0, domain::integer);
    const auto b = m.add_variable(-127720.0, 1693867.0, domain::integer);
    m.add_row(543.55233 * a + 54355.23300000543 * b <= 38860295982.71221);
    m.add_row(-251.36355 * a - 25136.355 * b >= -17970784804.22355);
    CHECK(status_of(solve(m).why) != "infeasible");
}

TEST_CASE("a coefficient that is tiny beside another of its row counts where the other variable is 0") {
    model m;
    const auto large = m.add_variable(-1.0, 0.0, domain::integer);
    const auto small = m.add_variable(0.0, 1.0, domain::integer);
    m.set_objective(-0.86772 * large - 108.909 * small);
    m.add_row(998430841583.0 * large + 0.445203 * small <= 0.0);
    check_optimum(m, solve(m), 0.86772 - 108.909);
}

TEST_CASE("where objectives are multiples of a step, a bound one step lower doesn't end the search") {
    struct known_solution {
        std::vector<double> point;
        std::vector<double> first_solution() const { return point; }
    };
    model m;
    const auto a = m.add_variable(0.0, 1.0, domain::integer), b = m.add_variable(0.0, 1.0, domain::integer);
    const auto costly = m.add_variable(0.0, 1.0, domain::integer);
    const auto flow = m.add_variable(1.0, 1e7);
    m.set_objective(costly);
    m.add_row(flow - 1e7 * a - 1e7 * b - 1e7 * costly <= 0.0);
    for (const bool presolve : {true, false})
        for (const bool conflicts : {true, false}) {
            solve_options options;
            options.presolve = presolve;
            options.conflict_search = conflicts;
            check_optimum(m, solve(m, options, known_solution{{0.0, 0.0, 1.0, 1.0}}), 0.0);
        }
}
