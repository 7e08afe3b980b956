#include "oracle/milp_exhaustive.hpp"
#include "oracle/milp_random.hpp"
#include "oracle/random_cases.hpp"
#include <optpipe/milp/check.hpp>
#include <optpipe/milp/solve.hpp>

#include <doctest/doctest.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

using namespace optpipe::milp;

namespace {

/// Counts how often the search lost the known optimum.
struct recorder {
    std::vector<double> optimum;
    std::size_t* losses;

    [[nodiscard]] static constexpr bool active() { return true; }
    [[nodiscard]] std::span<const double> point() const { return optimum; }
    void cut_off(const char* place) const {
        ++*losses;
        INFO("the search lost the optimum: " << place);
    }
};
static_assert(witness<recorder>);
static_assert(!witness<std::vector<double>>);

oracle::random_model_shape shape_of(std::uint64_t seed) {
    switch (seed % 3) {
    case 0: return {.integers = 6, .reals = 2};
    case 1: return {.integers = 8, .reals = 0};
    default: return {.integers = 4, .reals = 3};
    }
}

/// The options of a variant, each with some parts of the search switched off.
solve_options options_of(std::uint64_t seed, std::size_t variant) {
    solve_options o;
    o.seed = seed;
    o.conflict_search = variant != 1 && variant != 2;
    o.heuristics = variant != 2 && variant != 3;
    o.presolve = variant != 3;
    o.cuts = variant != 2;
    o.deterministic = variant == 3;
    o.restarts = variant;
    return o;
}

std::string_view name_of(oracle::exhaustive_status s) {
    switch (s) {
    case oracle::exhaustive_status::optimal: return "optimal";
    case oracle::exhaustive_status::infeasible: return "infeasible";
    case oracle::exhaustive_status::unbounded: return "unbounded";
    }
    return {};
}

void compare(const model& m, const oracle::exhaustive_result& expected, const solve_options& options) {
    std::size_t losses = 0;
    const bool known = expected.status == oracle::exhaustive_status::optimal;
    const auto found = known ? solve(m, options, no_hooks{}, recorder{expected.values, &losses}) : solve(m, options);
    CHECK(losses == 0);
    REQUIRE(status_of(found.why) == name_of(expected.status));
    if (!known) return;
    const double slack = 1e-5 * std::max(1.0, std::abs(expected.objective));
    CHECK(std::abs(found.objective - expected.objective) <= slack);
    CHECK(std::abs(found.bound - expected.objective) <= slack);
    REQUIRE(found.incumbent.has_value());
    CHECK(check(m, *found.incumbent, options.tolerance).empty());
    CHECK(objective_value(m, *found.incumbent) == doctest::Approx(found.objective));
}

} // namespace

TEST_CASE("random models: what looking at every point says") {
    const auto models = oracle::random_cases(2000);
    for (std::uint64_t seed = 1; seed <= models; ++seed) {
        CAPTURE(seed);
        const auto m = oracle::random_model(seed, shape_of(seed));
        const auto expected = oracle::exhaustive_optimum(m);
        for (std::size_t variant = 0; variant < 4; ++variant) {
            CAPTURE(variant);
            compare(m, expected, options_of(seed, variant));
        }
    }
}

TEST_CASE("random models without the tree: whatever the proof says is right") {
    std::size_t proven = 0;
    const auto models = oracle::random_cases(500);
    for (std::uint64_t seed = 1; seed <= models; ++seed) {
        CAPTURE(seed);
        const auto m = oracle::random_model(seed, shape_of(seed));
        const auto expected = oracle::exhaustive_optimum(m);
        solve_options options;
        options.tree_search = false;
        options.time_limit = std::chrono::seconds{5};
        const auto found = solve(m, options);
        if (std::holds_alternative<stopped>(found.why)) continue;
        ++proven;
        CHECK(status_of(found.why) == name_of(expected.status));
        if (expected.status == oracle::exhaustive_status::optimal)
            CHECK(found.objective == doctest::Approx(expected.objective));
    }
    CHECK(proven > models / 2);
}

namespace {

/// An invalid cut: it forbids the best value.
struct forbids {
    variable x;
    [[nodiscard]] std::vector<constraint> cuts_at(std::span<const double>) const { return {1.0 * x <= 0.0}; }
};

} // namespace

TEST_CASE("a cut that takes the optimum away is noticed") {
    model m;
    const auto x = m.add_binary(), y = m.add_binary(), z = m.add_binary();
    m.add_row(3.0 * x + 5.0 * y + 4.0 * z <= 8.0);
    m.set_objective(6.0 * x + 4.0 * y + 5.0 * z, sense::maximize);
    solve_options options;
    options.conflict_search = false;
    options.heuristics = false;
    options.presolve = false; // the presolved model would need no cuts
    for (const bool valid : {true, false}) {
        std::size_t losses = 0;
        const recorder known{{1.0, 0.0, 1.0}, &losses};
        static_cast<void>(solve(m, options, forbids{valid ? y : x}, known));
        CHECK((losses > 0) == !valid);
    }
}
