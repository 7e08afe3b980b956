#include "oracle/milp_exhaustive.hpp"
#include "oracle/milp_random.hpp"
#include <optpipe/core/random.hpp>
#include <optpipe/milp/check.hpp>
#include <optpipe/milp/solve.hpp>

#include <doctest/doctest.h>

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

using namespace optpipe::milp;

namespace {

/// Jobs on one machine, in any order, with the last end within [lower, upper].
struct one_machine {
    model m;
    variable makespan;

    one_machine(double lower, double upper) : makespan{m.add_variable(lower, upper)} {
        constexpr std::array lengths{18.5, 18.1, 9.3, 0.6};
        constexpr double horizon = 100.0;
        std::vector<variable> ends;
        for (const double length : lengths) {
            ends.push_back(m.add_variable(length, horizon));
            m.add_row(1.0 * makespan - 1.0 * ends.back() >= 0.0);
        }
        for (std::size_t a = 0; a < lengths.size(); ++a)
            for (std::size_t b = 0; b < a; ++b) {
                const auto first = m.add_binary();
                m.add_row(ends[b] - ends[a] + horizon * first >= lengths[b]);
                m.add_row(ends[a] - ends[b] - horizon * first >= lengths[a] - horizon);
            }
        m.set_objective(makespan);
    }
};
constexpr double sum_of_lengths = 46.5;

constexpr std::array widths{0.0, 1e-13, 1e-11, 1e-10, 1e-9, 2.56871e-8, 1e-7, 1e-6};

/// Presolve, propagation and learning, relaxations and cuts: all together, and each one alone.
solve_options options_of(std::size_t variant) {
    solve_options o;
    o.presolve = variant != 1;
    o.conflict_search = variant != 2;
    o.cuts = variant != 2 && variant != 3;
    o.heuristics = variant != 3;
    o.tree_search = variant != 4;
    o.restarts = variant == 0 ? 3 : 0;
    return o;
}
constexpr std::size_t variants = 4;

/// The same model with its objective as a separate column, between bounds, and each row times a power of ten.
model with_objective_between(const model& given, double lower, double upper, std::uint64_t seed) {
    optpipe::random_numbers random{seed};
    model m;
    for (const variable x : given.all_variables())
        m.add_variable(given.lower(x), given.upper(x), given.domain_of(x));
    const auto objective = m.add_variable(lower, upper);
    expression sum = -1.0 * objective;
    for (const variable x : given.all_variables())
        sum += given.cost(x) * x;
    std::vector<double> scales{1e-3, 1e-2, 1e-1, 1.0, 10.0, 1e2, 1e3};
    const auto scale = [&] { return scales[random.below(scales.size())]; };
    const double s = scale();
    m.add_row(s * sum == -s * given.offset());
    for (const row r : given.all_rows()) {
        const double factor = scale();
        std::vector<term> terms;
        for (const auto& t : given.terms(r))
            terms.push_back({t.column, factor * t.coefficient});
        m.add_row(factor * given.row_lower(r), terms, factor * given.row_upper(r));
    }
    m.set_direction(given.direction());
    m.set_cost(objective, 1.0);
    return m;
}

void check_optimum(const model& m, const result& found, double optimum) {
    REQUIRE(status_of(found.why) == "optimal");
    REQUIRE(found.incumbent.has_value());
    CHECK(check(m, *found.incumbent).empty());
    CHECK(std::abs(found.objective - optimum) <= 1e-5 * std::max(1.0, std::abs(optimum)));
}

/// max x, an integer between the bounds.
double largest_integer(double lower, double upper, bool presolve) {
    model m;
    const auto x = m.add_variable(lower, upper, domain::integer);
    m.set_objective(1.0 * x, sense::maximize);
    solve_options options;
    options.presolve = presolve;
    const auto r = solve(m, options);
    return status_of(r.why) == "optimal" ? r.objective : -infinity;
}

} // namespace

TEST_CASE("an integer's bounds are integers, within the tolerance") {
    for (const bool presolve : {false, true}) {
        CAPTURE(presolve);
        for (const double off : {5e-7, 0.0, -5e-7})
            CHECK(largest_integer(-2.0, 7.0 - off, presolve) == 7.0);
        for (const double upper : {6.999999, 2.999999, 0.999999}) { // both are correct
            const double found = largest_integer(-2.0, upper, presolve);
            CHECK((found == std::ceil(upper) || found == std::floor(upper)));
        }
        CHECK(largest_integer(-2.0, 6.9, presolve) == 6.0);
        CHECK(largest_integer(2.0000005, 2.5, presolve) == 2.0);
    }
}

TEST_CASE("bounds that lie next to each other leave what lies between them") {
    for (const double width : widths)
        for (const bool from_below : {false, true})
            for (std::size_t variant = 0; variant < variants; ++variant) {
                CAPTURE(width);
                CAPTURE(from_below);
                CAPTURE(variant);
                const double low = from_below ? sum_of_lengths : sum_of_lengths - width;
                const double high = from_below ? sum_of_lengths + width : sum_of_lengths;
                const one_machine jobs{low, high};
                check_optimum(jobs.m, solve(jobs.m, options_of(variant)), sum_of_lengths);
            }
}

TEST_CASE("bounds that leave nothing are noticed") {
    for (std::size_t variant = 0; variant < variants; ++variant) {
        CAPTURE(variant);
        const one_machine jobs{sum_of_lengths - 1.0, sum_of_lengths - 1e-3};
        CHECK(status_of(solve(jobs.m, options_of(variant)).why) == "infeasible");
    }
}

TEST_CASE("bounds and sides that cross by less than the tolerance are equal, others have no solution") {
    for (const bool presolve : {false, true}) {
        CAPTURE(presolve);
        solve_options options;
        options.presolve = presolve;
        for (const double gap : {1e-9, 1e-7}) {
            const one_machine jobs{sum_of_lengths + gap, sum_of_lengths};
            check_optimum(jobs.m, solve(jobs.m, options), sum_of_lengths);
            model rows;
            const auto x = rows.add_variable(0.0, 9.0), y = rows.add_variable(0.0, 9.0, domain::integer);
            rows.add_row(5.5 + gap, {{x, 1.0}, {y, 1.0}}, 5.5);
            rows.add_row(2.0 * x - y >= 0.0);
            rows.set_objective(x);
            check_optimum(rows, solve(rows, options), 2.5);
            rows.add_row(3.0 * x + 3.0 * y >= 16.5 + gap);
            check_optimum(rows, solve(rows, options), 2.5);
        }
        const one_machine none{sum_of_lengths + 1e-3, sum_of_lengths};
        CHECK(status_of(solve(none.m, options).why) == "infeasible");
    }
}

TEST_CASE("random models whose objective is known: bounds around it, rows of all sizes") {
    constexpr std::uint64_t models = 400;
    MESSAGE("seeds 1 to " << models);
    std::size_t tried = 0;
    for (std::uint64_t seed = 1; seed <= models; ++seed) {
        CAPTURE(seed);
        const auto given = oracle::random_model(seed, {.integers = 5, .reals = 3});
        const auto known = oracle::exhaustive_optimum(given);
        if (known.status != oracle::exhaustive_status::optimal) continue;
        ++tried;
        const double width = widths[seed % widths.size()];
        const double optimum = known.objective;
        CAPTURE(width);
        const auto m = with_objective_between(given, optimum - width, optimum + width, seed);
        for (std::size_t variant = 0; variant < variants; ++variant) {
            CAPTURE(variant);
            check_optimum(m, solve(m, options_of(variant)), optimum);
        }
    }
    CHECK(tried > models / 2);
}
