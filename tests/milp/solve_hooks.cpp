#include <optpipe/milp/check.hpp>
#include <optpipe/milp/solve.hpp>

#include <doctest/doctest.h>

#include <cmath>
#include <cstddef>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

using namespace optpipe::milp;

namespace archetype {

/// The least that a solver has to be.
struct solver {
    result operator()(const model&, const solve_options&) const { return {}; }
    [[nodiscard]] static std::string_view name() { return "nobody"; }
};

} // namespace archetype

namespace mutant {

struct without_name {
    result operator()(const model&, const solve_options&) const { return {}; }
};
struct without_solve {
    [[nodiscard]] static std::string_view name() { return "idle"; }
};
struct with_bare_status {
    termination operator()(const model&, const solve_options&) const { return optimal{}; }
    [[nodiscard]] static std::string_view name() { return "terse"; }
};
struct without_copy : archetype::solver {
    without_copy() = default;
    without_copy(const without_copy&) = delete;
};
struct changing_the_model {
    result operator()(model&, const solve_options&) const { return {}; }
    [[nodiscard]] static std::string_view name() { return "rude"; }
};

} // namespace mutant

static_assert(milp_solver<archetype::solver> && check_milp_solver<archetype::solver>());
static_assert(milp_solver<own_solver>);
static_assert(!milp_solver<mutant::without_name>);
static_assert(!milp_solver<mutant::without_solve>);
static_assert(!milp_solver<mutant::with_bare_status>);
static_assert(!milp_solver<mutant::without_copy>);
static_assert(!milp_solver<mutant::changing_the_model>);

namespace {

/// Choose ten of thirty, with weights that make the relaxation fractional.
struct knapsack {
    model m;
    std::vector<variable> x;

    knapsack() {
        expression weight, worth;
        for (std::size_t k = 0; k < 30; ++k) {
            x.push_back(m.add_binary());
            weight += static_cast<double>((k * 37 + 11) % 61 + 20) * x.back();
            worth += static_cast<double>((k * 41 + 7) % 59 + 20) * x.back();
        }
        m.add_row(weight <= 400.0);
        m.set_objective(worth, sense::maximize);
    }
};

struct starts {
    std::vector<double> values;
    [[nodiscard]] std::vector<double> first_solution() const { return values; }
};
struct prefers {
    [[nodiscard]] static int branching_priority(variable x) { return static_cast<int>(x.value() % 3); }
};
struct knows_bound {
    double bound;
    [[nodiscard]] double objective_bound() const { return bound; }
};
struct rounds_down {
    std::size_t* calls;
    [[nodiscard]] std::optional<std::vector<double>> solution_near(std::span<const double> point) const {
        ++*calls;
        std::vector<double> values(point.begin(), point.end());
        for (auto& v : values)
            v = std::floor(v);
        return values;
    }
};
struct forbids {
    variable x;
    std::size_t* calls;
    [[nodiscard]] std::vector<constraint> cuts_at(std::span<const double>) const {
        ++*calls;
        return {1.0 * x <= 0.0};
    }
};

static_assert(gives_first_solution<starts> && !gives_first_solution<no_hooks>);
static_assert(gives_priorities<prefers> && !gives_priorities<starts>);
static_assert(gives_bound<knows_bound> && !gives_bound<prefers>);
static_assert(gives_heuristic<rounds_down> && !gives_heuristic<knows_bound>);
static_assert(gives_cuts<forbids> && !gives_cuts<rounds_down>);

solve_options plain() {
    solve_options o;
    o.conflict_search = false;
    o.heuristics = false;
    return o;
}

} // namespace

TEST_CASE("a first solution is the incumbent until there is a better one; a wrong one is ignored") {
    const knapsack k;
    const auto best = solve(k.m);
    REQUIRE(best.incumbent.has_value());
    solve_options options;
    options.node_limit = 0;
    CHECK(solve(k.m, options, starts{*best.incumbent}).incumbent == best.incumbent);
    for (const auto& other : {std::vector<double>(30, 1.0), std::vector<double>{1.0}, std::vector<double>(30, 0.0)}) {
        const auto r = solve(k.m, {}, starts{other});
        CHECK(std::holds_alternative<optimal>(r.why));
        CHECK(r.objective == best.objective);
    }
}

TEST_CASE("priorities change the tree, not the optimum") {
    const knapsack k;
    const auto with = solve(k.m, plain(), prefers{}), without = solve(k.m, plain());
    CHECK(std::holds_alternative<optimal>(with.why));
    CHECK(with.objective == without.objective);
}

TEST_CASE("a bound that the incumbent reaches ends the search") {
    const knapsack k;
    const auto best = solve(k.m);
    const auto r = solve(k.m, plain(), knows_bound{best.objective});
    CHECK(std::holds_alternative<optimal>(r.why));
    CHECK(r.objective == best.objective);
}

TEST_CASE("the user's heuristic is asked, and what it says is checked") {
    // Several weights at once: not to be solved before there is a tree.
    knapsack k;
    for (std::size_t row = 1; row < 6; ++row) {
        expression weight;
        for (std::size_t i = 0; i < k.x.size(); ++i)
            weight += static_cast<double>((i * i * 13 + row * 29 + i * row * 7) % 53 + 10) * k.x[i];
        k.m.add_row(weight <= 330.0);
    }
    std::size_t calls = 0;
    auto options = plain();
    options.heuristics = true;
    options.presolve = false;
    options.cuts = false;
    options.restarts = 0;
    const auto r = solve(k.m, options, rounds_down{&calls});
    CHECK(calls > 0);
    CHECK(r.objective == solve(k.m).objective);
}

TEST_CASE("the user's cuts hold") {
    const knapsack k;
    std::size_t calls = 0;
    const auto best = solve(k.m);
    std::size_t taken = 0;
    while ((*best.incumbent)[taken] < 0.5)
        ++taken;
    // not a valid cut; that it changes the result shows that it is used
    const auto r = solve(k.m, plain(), forbids{k.x[taken], &calls});
    CHECK(calls > 0);
    CHECK(r.objective <= best.objective);
}

TEST_CASE("progress is told, in order, and may bring solutions") {
    const knapsack k;
    const auto best = solve(k.m);
    double incumbent = -infinity, bound = infinity;
    std::size_t calls = 0;
    solve_options options;
    options.progress_interval = std::chrono::duration<double>{0.0};
    options.on_progress = [&](const progress& p, solution_sink& sink) {
        ++calls;
        CHECK(p.incumbent >= incumbent);
        CHECK(p.bound <= bound);
        CHECK(p.bound >= p.incumbent);
        incumbent = p.incumbent;
        bound = p.bound;
        sink.offer(*best.incumbent);
        sink.offer(std::vector<double>(30, 1.0));
    };
    std::vector<double> zeros(30, 0.0);
    const auto r = solve(k.m, options, starts{zeros});
    CHECK(calls > 0);
    CHECK(std::holds_alternative<optimal>(r.why));
    CHECK(r.objective == best.objective);
    CHECK(r.stats.solutions == 2);
    CHECK(!r.stats.history.empty());
}
