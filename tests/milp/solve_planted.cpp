#include "oracle/milp_cancelling.hpp"
#include "oracle/milp_planted.hpp"
#include "oracle/random_cases.hpp"
#include <optpipe/milp/check.hpp>
#include <optpipe/milp/io/read_mps.hpp>
#include <optpipe/milp/solve.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <limits>
#include <string>
#include <variant>
#include <vector>

using namespace optpipe::milp;

namespace {

model reported(const std::string& name) {
    return read_mps(OPTPIPE_SOURCE_DIR "/tests/data/milp/reported/" + name + ".mps");
}

/// The number of models to try: OPTPIPE_PLANTED_MODELS, or `otherwise`.
std::uint64_t count_of_models(std::uint64_t otherwise) {
    const char* wanted = std::getenv("OPTPIPE_PLANTED_MODELS");
    return wanted ? std::strtoull(wanted, nullptr, 10) : otherwise;
}

/// The tolerance of an objective: that of the sum of its terms' sizes.
template <class Planted> double objective_slack(const Planted& planted) {
    double size = 1.0 + std::abs(planted.m.offset());
    for (const variable x : planted.m.all_variables())
        size += std::abs(planted.m.cost(x) * planted.point[x.position()]);
    return optpipe::tolerance{}.at(size);
}

/// Solves the model, and checks that the result doesn't contradict its point.
template <class Planted> void check_point(const Planted& planted, std::size_t threads, bool presolve) {
    CAPTURE(threads);
    CAPTURE(presolve);
    solve_options options;
    options.threads = threads;
    options.presolve = presolve;
    options.time_limit = std::chrono::seconds{2}; // some have integers without bounds
    const auto found = solve(planted.m, options);
    const double sign = planted.m.direction() == sense::maximize ? -1.0 : 1.0;
    const double reached = sign * objective_value(planted.m, planted.point) + objective_slack(planted);
    CHECK(status_of(found.why) != "infeasible");
    CHECK(sign * found.bound <= reached);
    if (status_of(found.why) == "optimal") CHECK(sign * found.objective <= reached);
    if (found.incumbent) CHECK(check(planted.m, *found.incumbent).empty());
}

void check_planted(std::uint64_t seed, std::size_t threads, bool presolve) {
    CAPTURE(seed);
    const auto planted = oracle::random_planted_model(seed);
    REQUIRE(check(planted.m, planted.point, optpipe::tolerance{0.0}).empty());
    check_point(planted, threads, presolve);
}

void check_cancelling(std::uint64_t seed) {
    CAPTURE(seed);
    const auto planted = oracle::random_cancelling_model(seed);
    for (const bool presolve : {true, false})
        check_point(planted, 1, presolve);
}

} // namespace

TEST_CASE("what a planted point says isn't denied, whatever the coefficients") {
    const auto models = count_of_models(250);
    MESSAGE("seeds 1 to " << models);
    for (std::uint64_t seed = 1; seed <= models; ++seed)
        for (const std::size_t threads : {1U, 2U})
            check_planted(seed, threads, seed % 5 != 0);
}

TEST_CASE("planted points that were once denied") {
    for (const std::uint64_t seed :
         {42U, 417U, 955U, 1551U, 1972U, 2293U, 2580U, 2748U, 3476U, 127288U, 128759U, 146918U, 154266U, 605895U})
        check_planted(seed, 1, true);
}

TEST_CASE("rows in which large terms cancel deny no planted point") {
    constexpr std::uint64_t seed = 500'000;
    for (std::uint64_t i = 0; i < oracle::random_cases(500); ++i)
        check_cancelling(seed + i);
}

TEST_CASE("rows in which large terms cancel and that once denied a planted point") {
    for (const std::uint64_t seed :
         {2367U,  3110U,  3396U,  6255U,   7309U,    8466U,    11482U,   11953U,   13670U,   13958U,  14679U,
          17391U, 19380U, 19555U, 602904U, 1563462U, 1819068U, 1889859U, 2333114U, 3125075U, 5315716U})
        check_cancelling(seed);
}

TEST_CASE("a sum of rows in which large terms cancel is rounded only beyond its error") {
    check_point(oracle::random_cancelling_model(1167866), 1, false);
}

TEST_CASE("coefficients of integers without bounds are no multiples unless they are to the last digit") {
    constexpr double x = -168300003.0, y = -7650000.0, factor = 22.000000000022;
    constexpr double side = -2.9998317122162916; // exactly x - factor * y
    model m;
    const auto first = m.add_variable(-infinity, infinity, domain::integer);
    const auto second = m.add_variable(-infinity, infinity, domain::integer);
    m.add_row(first - factor * second == side);
    REQUIRE(check(m, std::vector{x, y}, optpipe::tolerance{0.0}).empty());
    for (const bool presolve : {true, false}) {
        CAPTURE(presolve);
        solve_options options;
        options.presolve = presolve;
        options.time_limit = std::chrono::seconds{2};
        CHECK(status_of(solve(m, options).why) != "infeasible");
    }
}

TEST_CASE("a column is no multiple of a decimal that its bound only resembles") {
    model m;
    const auto x = m.add_variable(3.0, 7.0, domain::integer), y = m.add_variable(-infinity, -19999999.92001);
    m.add_row(1e7 * x + y == 9999999.9999900013);
    m.set_objective(-7.0 * x - 9.0 * y);
    for (const bool presolve : {true, false})
        for (const bool tree_search : {true, false}) {
            CAPTURE(presolve);
            CAPTURE(tree_search);
            solve_options options;
            options.presolve = presolve;
            options.tree_search = tree_search;
            const auto found = solve(m, options);
            CHECK(status_of(found.why) != "infeasible");
            CHECK(found.bound <= 179999979.0000855 * (1.0 + 1e-6));
        }
}

TEST_CASE("sides that lose digits on the way don't make a model infeasible") {
    const struct {
        const char* name;
        double optimum;
    } cases[] = {{"feasible_121", 27.9079420},
                 {"feasible_504", -44.2150403},
                 {"feasible_933", -999.5994378},
                 {"feasible_998", 39.3842832}};
    for (const auto& c : cases)
        for (const bool presolve : {true, false}) {
            CAPTURE(c.name);
            CAPTURE(presolve);
            const auto m = reported(c.name);
            solve_options options;
            options.presolve = presolve;
            const auto found = solve(m, options);
            REQUIRE(status_of(found.why) == "optimal");
            CHECK(std::abs(found.objective - c.optimum) < 1e-5 * std::abs(c.optimum));
            CHECK(check(m, *found.incumbent).empty());
        }
}

TEST_CASE("a model is infeasible where the tolerance ends, not before") {
    const auto status = [](double gap, bool presolve) {
        model m;
        const auto x = m.add_variable(-infinity, infinity), y = m.add_variable(0.0, 1.0, domain::integer);
        m.add_row(0.001 * x + 1000.0 * y >= 1000.5 + gap);
        m.add_row(0.001 * x + 1000.0 * y <= 1000.5);
        m.set_objective(x + y);
        solve_options options;
        options.presolve = presolve;
        return std::string{status_of(solve(m, options).why)};
    };
    for (const bool presolve : {true, false}) {
        CAPTURE(presolve);
        CHECK(status(0.0, presolve) == "optimal");
        CHECK(status(5e-8, presolve) == "optimal"); // a twentieth of the checker's tolerance
        CHECK(status(1e-4, presolve) == "infeasible");
    }
}

TEST_CASE("no number that stands in for infinity proves anything") {
    const auto m = reported("open_832");
    for (const std::size_t threads : {1U, 2U}) {
        CAPTURE(threads);
        solve_options options;
        options.threads = threads;
        options.time_limit = std::chrono::seconds{2};
        const auto found = solve(m, options);
        const bool is_honest =
            std::holds_alternative<unbounded>(found.why) || std::holds_alternative<stopped>(found.why);
        CHECK_MESSAGE(is_honest, status_of(found.why));
        CHECK(found.bound == -std::numeric_limits<double>::infinity());
    }
}

TEST_CASE("integers without bounds leave the relaxation its turn") {
    const auto m = reported("creeping_565");
    const auto found = solve(m);
    CHECK(status_of(found.why) == "optimal");
    CHECK(found.objective == doctest::Approx(-1000.0));
    CHECK(found.stats.conflicts < 200); // there were 247, with millions of visits of rows between them
}

TEST_CASE("numbers of very different sizes are no numerical trouble") {
    const struct {
        const char* name;
        double optimum;                                     // of HiGHS and SCIP
    } cases[] = {{"large_terms_1804", -1003968713600513.5}, // the activity of a row has a rounding error above its side
                 {"large_terms_7922", -139696707216182.25},
                 {"cutoff_2255", -2.701171875}}; // a bound from the cutoff leaves less than rounding errors
    for (const auto& c : cases)
        for (const std::size_t threads : {1U, 2U}) {
            CAPTURE(c.name);
            CAPTURE(threads);
            const auto m = reported(c.name);
            solve_options options;
            options.threads = threads;
            const auto found = solve(m, options);
            REQUIRE(status_of(found.why) == "optimal");
            CHECK(std::abs(found.objective - c.optimum) < 1e-6 * std::abs(c.optimum));
            CHECK(check(m, *found.incumbent).empty());
        }
}

TEST_CASE("an unbounded relaxation of a node is unbounded at the root, too") {
    for (const std::string name : {"open_832", "ray_1699", "ray_4049"})
        for (const std::size_t threads : {1U, 2U}) {
            CAPTURE(name);
            CAPTURE(threads);
            solve_options options;
            options.threads = threads;
            CHECK(status_of(solve(reported(name), options).why) == "unbounded");
        }
}
