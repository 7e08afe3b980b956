#include "oracle/milp_exhaustive.hpp"
#include "oracle/milp_models.hpp"
#include "oracle/milp_random.hpp"
#include <optpipe/core/random.hpp>
#include <optpipe/milp/check.hpp>
#include <optpipe/milp/presolve.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <map>
#include <sstream>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

using namespace optpipe::milp;
using oracle::exhaustive_status;

namespace {

constexpr oracle::random_model_shape shapes[] = {{6, 2, 6, true},    {8, 0, 8, false}, {3, 3, 4, true},
                                                 {10, 0, 12, false}, {0, 3, 5, true},  {5, 1, 10, true}};

bool same(double a, double b) { return std::abs(a - b) <= 1e-6 * std::max({1.0, std::abs(a), std::abs(b)}); }

/// The fault of the presolved model; empty if it has the optimum that was found by exhaustion.
std::string disagreement(const model& m, const presolve_result& p) {
    const auto truth = oracle::exhaustive_optimum(m);
    std::ostringstream text;
    if (p.status() == presolve_status::infeasible)
        return truth.status == exhaustive_status::infeasible ? "" : "it is feasible";
    if (p.status() == presolve_status::unbounded)
        return truth.status != exhaustive_status::optimal ? "" : "it has an optimum";
    const auto found = oracle::exhaustive_optimum(p.model(), 1e5);
    if (found.status != truth.status) {
        text << "the status was " << static_cast<int>(truth.status) << ", is " << static_cast<int>(found.status);
        return text.str();
    }
    if (truth.status != exhaustive_status::optimal) return "";
    if (!same(found.objective, truth.objective)) {
        text << "the optimum was " << truth.objective << ", is " << found.objective;
        return text.str();
    }
    const auto restored = p.restore(found.values);
    if (!same(objective_value(m, restored), truth.objective)) return "the restored objective differs";
    const auto violations = check(m, restored);
    return violations.empty() ? "" : "restored: " + describe(m, violations.front());
}

/// All assignments of a model of bounded integers.
template <class Visit> void for_each_point(const model& m, Visit visit) {
    std::vector<double> point;
    for (const variable x : m.all_variables())
        point.push_back(m.lower(x));
    while (true) {
        visit(point);
        std::size_t j = 0;
        for (; j < point.size(); ++j) {
            if (++point[j] <= m.upper(variable{j})) break;
            point[j] = m.lower(variable{j});
        }
        if (j == point.size()) return;
    }
}

} // namespace

TEST_CASE("the presolved model has the optimum of the original, and solutions are restored") {
    constexpr std::uint64_t seeds = 3000;
    MESSAGE("seeds 1 to " << seeds);
    for (std::uint64_t seed = 1; seed <= seeds; ++seed) {
        const auto m = oracle::random_model(seed, shapes[seed % std::size(shapes)]);
        const auto wrong = disagreement(m, presolve(m));
        CHECK_MESSAGE(wrong.empty(), "seed " << seed << ": " << wrong);
    }
}

TEST_CASE("random models have something for every method") {
    using namespace presolving;
    std::map<std::string_view, std::size_t> applied;
    const auto run_all = [&](reducer& r, const auto&... methods) {
        bool goes_on = true;
        const auto run = [&](const auto& method) {
            if (!goes_on) return;
            const auto v = r.run(method);
            applied[std::decay_t<decltype(method)>::name] += v == verdict::applied ? 1 : 0;
            goes_on = v == verdict::applied || v == verdict::unchanged;
        };
        (run(methods), ...);
        return goes_on;
    };
    constexpr int rounds = 5;
    for (std::uint64_t seed = 1; seed <= 3000; ++seed) {
        const auto m = oracle::random_model(seed, shapes[seed % std::size(shapes)]);
        reducer r{m, margins{}};
        bool goes_on = !r.is_infeasible();
        for (int round = 0; round < rounds && goes_on; ++round)
            goes_on = run_all(r, redundant_rows{}, singleton_rows{}, integer_rows{}, implied_bounds{},
                              doubleton_equations{}, singleton_columns{true, true}, dual_fixing{}, tight_rows{},
                              free_columns{}, duplicate_rows{}, duplicate_columns{}, coefficient_tightening{},
                              dominated_columns{}, probing{}, clique_merging{});
    }
    CHECK(applied.size() == 15);
    for (const auto& of_method : applied)
        CHECK_MESSAGE(of_method.second > 0, of_method.first << " was never applied");
}

TEST_CASE("without dual reductions no feasible point is lost") {
    constexpr std::uint64_t seeds = 600;
    MESSAGE("seeds 1 to " << seeds);
    presolve_options options;
    options.dual_reductions = false;
    std::size_t points = 0;
    for (std::uint64_t seed = 1; seed <= seeds; ++seed) {
        const auto m = oracle::random_model(seed, {6, 0, 8, false});
        const auto p = presolve(m, options);
        for_each_point(m, [&](const std::vector<double>& point) {
            if (!check(m, point).empty()) return;
            ++points;
            REQUIRE_MESSAGE(p.status() == presolve_status::reduced, "seed " << seed);
            const auto projected = p.project(point);
            CHECK_MESSAGE(check(p.model(), projected).empty(), "seed " << seed);
            CHECK_MESSAGE(same(objective_value(p.model(), projected), objective_value(m, point)), "seed " << seed);
        });
    }
    CHECK(points > seeds);
}

namespace {

/// Small integral coefficients, and sides that some points meet and others don't.
constraint random_row(const model& m, optpipe::random_numbers& random) {
    expression body{static_cast<double>(random.between(0, 4))};
    for (const variable x : m.all_variables())
        if (random.chance(60)) body += (static_cast<double>(random.between(0, 10)) - 5.0) * x;
    return -3.0 <= std::move(body) <= 4.0;
}

/// Whether a row holds at a point.
bool holds(const constraint& c, const std::vector<double>& point) {
    const double value = activity(c.body.terms(), point) + c.body.constant();
    return value >= c.lower - 1e-6 && value <= c.upper + 1e-6;
}

} // namespace

TEST_CASE("one to one, every feasible point is one of the reduced model's, and rows are translated") {
    constexpr std::uint64_t seeds = 600;
    MESSAGE("seeds 1 to " << seeds);
    presolve_options options;
    options.dual_reductions = options.many_to_one = false;
    std::size_t met = 0, missed = 0, gone = 0;
    for (std::uint64_t seed = 1; seed <= seeds; ++seed) {
        CAPTURE(seed);
        const auto m = oracle::random_model(seed, {6, 0, 8, false});
        const auto p = presolve(m, options);
        if (p.status() != presolve_status::reduced) continue;
        optpipe::random_numbers random{seed};
        const auto row = random_row(m, random);
        const auto translated = p.translate(row);
        REQUIRE(translated.has_value());
        gone += m.variables() - p.model().variables();
        std::size_t given = 0, left = 0;
        for_each_point(m, [&](const std::vector<double>& point) {
            if (!check(m, point).empty()) return;
            ++given;
            const auto projected = p.project(point);
            CHECK(p.restore(projected) == point);
            CHECK(holds(*translated, projected) == holds(row, point));
            ++(holds(row, point) ? met : missed);
        });
        for_each_point(p.model(), [&](const std::vector<double>& point) { left += check(p.model(), point).empty(); });
        CHECK(left == given);
    }
    CHECK((met > seeds && missed > seeds && gone > seeds));
}

TEST_CASE("a translated row has the value of the original where the point is restored") {
    constexpr std::uint64_t seeds = 1500;
    MESSAGE("seeds 1 to " << seeds);
    std::size_t told = 0, untold = 0;
    for (std::uint64_t seed = 1; seed <= seeds; ++seed) {
        CAPTURE(seed);
        const auto m = oracle::random_model(seed, shapes[seed % std::size(shapes)]);
        optpipe::random_numbers random{seed};
        const auto row = random_row(m, random);
        for (const bool one_to_one : {false, true}) {
            presolve_options options;
            options.dual_reductions = options.many_to_one = !one_to_one;
            const auto p = presolve(m, options);
            if (p.status() != presolve_status::reduced) continue;
            const auto translated = p.translate(row);
            ++(translated ? told : untold);
            CHECK((translated || !one_to_one));
            const auto best = oracle::exhaustive_optimum(p.model(), 1e5);
            if (!translated || best.status != exhaustive_status::optimal) continue;
            const double here = activity(translated->body.terms(), best.values) + translated->body.constant();
            const double there = activity(row.body.terms(), p.restore(best.values)) + row.body.constant();
            CHECK(same(here, there));
            CHECK((translated->lower == row.lower && translated->upper == row.upper));
        }
    }
    CHECK((told > seeds && untold > 0));
}

TEST_CASE("known models keep an optimum, as far as their size tells") {
    if (!oracle::can_read_known_models()) return;
    for (const auto& known : oracle::known_models("")) {
        const auto m = known.read();
        const auto p = presolve(m);
        if (known.status == "optimal" || known.status == "known")
            CHECK_MESSAGE(p.status() == presolve_status::reduced, known.name);
        else if (known.status == "infeasible")
            CHECK_MESSAGE(p.status() != presolve_status::unbounded, known.name);
        else
            CHECK_MESSAGE(p.status() != presolve_status::infeasible, known.name);
        CHECK((p.model().rows() <= m.rows() && p.model().variables() <= m.variables()));
    }
}

TEST_CASE("a variable that is found in the reduced model is the same") {
    for (std::uint64_t seed = 1; seed <= 200; ++seed) {
        const auto m = oracle::random_model(seed, shapes[seed % std::size(shapes)]);
        const auto p = presolve(m);
        if (p.status() != presolve_status::reduced) continue;
        for (const variable x : m.all_variables())
            if (const auto found = p.find(x)) CHECK(name_of(p.model(), *found) == name_of(m, x));
    }
}

TEST_CASE("models that are empty, free, or infeasible by their bounds") {
    CHECK(presolve(model{}).status() == presolve_status::reduced);
    CHECK(presolve(model{}).restore(std::vector<double>{}).empty());

    model free;
    free.add_variable(-infinity, infinity);
    free.add_row(-infinity, {{variable{0}, 1.0}}, infinity);
    const auto p = presolve(free);
    REQUIRE(p.status() == presolve_status::reduced);
    CHECK(check(free, p.restore(std::vector<double>(p.model().variables(), 0.0))).empty());
    free.set_cost(variable{0}, 1.0);
    CHECK(presolve(free).status() == presolve_status::unbounded);

    model crossed;
    crossed.add_variable(2.0, 1.0);
    CHECK(presolve(crossed).status() == presolve_status::infeasible);
    model between;
    between.add_variable(0.25, 0.75, domain::integer);
    CHECK(presolve(between).status() == presolve_status::infeasible);
}

TEST_CASE("presolve stops when it is told to, and what it has by then is right") {
    presolve_options options;
    options.deadline = std::chrono::steady_clock::time_point::min();
    for (std::uint64_t seed = 1; seed <= 50; ++seed) {
        const auto m = oracle::random_model(seed);
        const auto p = presolve(m, options);
        CHECK(disagreement(m, p).empty());
    }
    options.deadline = std::chrono::steady_clock::time_point::max();
    for (std::size_t rounds = 0; rounds < 4; ++rounds)
        for (std::uint64_t seed = 1; seed <= 200; ++seed) {
            options.rounds = rounds;
            const auto m = oracle::random_model(seed);
            CHECK_MESSAGE(disagreement(m, presolve(m, options)).empty(), "seed " << seed << ", rounds " << rounds);
        }
}
