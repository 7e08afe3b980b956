// A linear program of a hundred thousand columns and rows, with a known optimum because it is made from a pair of
// solutions.
#include <optpipe/core/random.hpp>
#include <optpipe/milp/io/read_mps.hpp>
#include <optpipe/milp/io/write_mps.hpp>
#include <optpipe/milp/solve.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <variant>
#include <vector>

using namespace optpipe::milp;

namespace {

struct known_model {
    model m;
    double optimum = 0.0;
};

/// Rows `a x >= b` of four entries each. Half of the columns are zero at the optimum and have a reduced cost; half of
/// the rows are tight and have a price. So by weak duality nothing costs less.
known_model make_known(std::size_t size) {
    constexpr std::size_t entries = 4;
    optpipe::random_numbers random{11};
    const auto number = [&](std::size_t least, std::size_t most) {
        return static_cast<double>(least + random.below(most - least + 1));
    };
    known_model made;
    std::vector<variable> x;
    std::vector<double> values, costs;
    for (std::size_t j = 0; j < size; ++j) {
        x.push_back(made.m.add_variable(0.0, infinity));
        const bool is_zero = random.below(2) == 0;
        values.push_back(is_zero ? 0.0 : number(1, 9));
        costs.push_back(is_zero ? number(1, 5) : 0.0);
    }
    for (std::size_t i = 0; i < size; ++i) {
        const double price = random.below(2) == 0 ? number(1, 5) : 0.0;
        double side = price > 0.0 ? 0.0 : -number(1, 20);
        std::array<std::size_t, entries> columns{i};
        for (std::size_t k = 1; k < entries; ++k)
            columns[k] = (columns[k - 1] + 1 + static_cast<std::size_t>(random.below(size / entries - 1))) % size;
        std::vector<term> terms;
        for (const auto j : columns) {
            const double coefficient = number(1, 7) * (random.below(3) == 0 ? -1.0 : 1.0);
            terms.push_back({x[j], coefficient});
            side += coefficient * values[j];
            costs[j] += coefficient * price;
        }
        made.m.add_row(side, terms, infinity);
    }
    for (std::size_t j = 0; j < size; ++j) {
        made.m.set_cost(x[j], costs[j]);
        made.optimum += costs[j] * values[j];
    }
    return made;
}

} // namespace

TEST_CASE("a hundred thousand columns and rows: solved, or stopped with a bound that is right") {
    const auto made = make_known(100'000);
    solve_options options;
    options.time_limit = std::chrono::seconds{5};
    const auto r = solve(made.m, options);
    const double slack = 1e-6 * std::abs(made.optimum);
    CHECK((std::holds_alternative<optimal>(r.why) || std::holds_alternative<stopped>(r.why)));
    CHECK(r.bound <= made.optimum + slack);
    CHECK(r.objective >= made.optimum - slack);
    if (std::holds_alternative<optimal>(r.why)) CHECK(r.objective == doctest::Approx(made.optimum).epsilon(1e-8));
}

TEST_CASE("a thirtieth of that is solved to the optimum") {
    const auto made = make_known(3'000);
    const auto r = solve(made.m);
    CHECK(std::holds_alternative<optimal>(r.why));
    CHECK(r.objective == doctest::Approx(made.optimum).epsilon(1e-8));
    CHECK(r.bound == doctest::Approx(made.optimum).epsilon(1e-8));
}

TEST_CASE("it goes through a file") {
    const auto made = make_known(100'000);
    const auto again = parse_mps(model_to_mps(made.m), "large.mps");
    CHECK(again.variables() == made.m.variables());
    CHECK(again.rows() == made.m.rows());
    CHECK(again.nonzeros() == made.m.nonzeros());
}
