#include "oracle/milp_exhaustive.hpp"
#include "oracle/milp_random.hpp"
#include "oracle/random_cases.hpp"
#include <optpipe/core/random.hpp>
#include <optpipe/milp/check.hpp>
#include <optpipe/milp/solve.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

using namespace optpipe::milp;

namespace archetype {

/// The least that a solver must provide.
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

/// Several weights at once, so that it isn't solved before there is a tree.
struct heavy_knapsack : knapsack {
    explicit heavy_knapsack(std::size_t seed = 0) {
        for (std::size_t row = 1; row < 6; ++row) {
            expression weight;
            for (std::size_t i = 0; i < x.size(); ++i)
                weight +=
                    static_cast<double>((i * i * 13 + row * 29 + i * row * 7 + seed * (i + row)) % 53 + 10) * x[i];
            m.add_row(weight <= 330.0);
        }
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
    const heavy_knapsack k;
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
    // not a valid cut; that it changes the result shows its use
    const auto r = solve(k.m, plain(), forbids{k.x[taken], &calls});
    CHECK(calls > 0);
    CHECK(r.objective <= best.objective);
}

namespace {

/// The points given to a separator.
struct shown_points {
    std::mutex access;
    std::vector<std::vector<double>> all;
};
/// Records its points, and claims that the forbidden variable is at most 0.
struct watches {
    shown_points* seen;
    std::optional<variable> forbidden;
    [[nodiscard]] std::vector<constraint> cuts_at(std::span<const double> point) const {
        const std::scoped_lock lock{seen->access};
        seen->all.emplace_back(point.begin(), point.end());
        if (!forbidden) return {};
        return {0.5 * *forbidden + 0.5 * *forbidden <= 0.0};
    }
};

/// Every other item is determined by one that isn't taken, so presolve can remove columns; one more is fixed.
struct reducible_knapsack : knapsack {
    std::vector<variable> left;
    variable fixed;

    reducible_knapsack() {
        for (std::size_t k = 0; k < x.size(); k += 2) {
            left.push_back(m.add_binary());
            m.add_row(x[k] + left.back() == 1.0);
        }
        fixed = m.add_variable(3.0, 3.0);
    }
};

bool is_fractional(double value) { return std::abs(value - std::round(value)) > 1e-4; }

} // namespace

TEST_CASE("presolve stays on beside the user's cuts, and they are asked about points of the given model") {
    const reducible_knapsack k;
    shown_points seen;
    const auto r = solve(k.m, plain(), watches{&seen, {}});
    CHECK(r.stats.presolved.variables <= k.x.size());
    REQUIRE(!seen.all.empty());
    for (const auto& point : seen.all) {
        REQUIRE(point.size() == k.m.variables());
        CHECK(std::any_of(point.begin(), point.end(), is_fractional));
        CHECK(point[k.fixed.position()] == 3.0);
        for (const row i : k.m.all_rows()) {
            const double value = activity(k.m.terms(i), point);
            CHECK((value >= k.m.row_lower(i) - 1e-4 && value <= k.m.row_upper(i) + 1e-4));
        }
    }
}

TEST_CASE("cuts on columns that presolve has taken away hold") {
    const reducible_knapsack k;
    const auto best = solve(k.m);
    // Not valid cuts; that they worsen the objective shows their use.
    std::size_t worse = 0;
    for (const auto& all : {k.x, k.left})
        for (const variable x : all) {
            if ((*best.incumbent)[x.position()] < 0.5) continue;
            shown_points seen;
            auto without = k.m;
            without.set_bounds(x, 0.0, 0.0);
            const auto r = solve(k.m, plain(), watches{&seen, x});
            CHECK(r.objective <= best.objective);
            CHECK(r.objective >= solve(without).objective);
            worse += r.objective < best.objective ? 1 : 0;
        }
    CHECK(worse > k.x.size() / 2);
}

namespace {

/// Half spaces that contain a known optimum and little else: valid, but they exclude every other optimum.
struct supports {
    const model* m;
    std::vector<double> optimum;
    std::uint64_t seed;
    std::size_t* cut_off;

    [[nodiscard]] std::vector<constraint> cuts_at(std::span<const double> point) const {
        optpipe::random_numbers random{seed};
        std::vector<constraint> cuts;
        for (std::size_t k = 0; k < 6; ++k) {
            expression body{static_cast<double>(k)};
            for (const variable x : m->all_variables())
                if (random.chance(50)) body += (static_cast<double>(random.between(0, 8)) - 4.0) * x;
            const double limit = activity(body.terms(), optimum) + body.constant();
            *cut_off += activity(body.terms(), point) + body.constant() > limit + 1e-6 ? 1 : 0;
            cuts.push_back(std::move(body) <= limit);
        }
        return cuts;
    }
};

struct counts_losses {
    std::vector<double> optimum;
    std::size_t* losses;

    [[nodiscard]] static constexpr bool active() { return true; }
    [[nodiscard]] std::span<const double> point() const { return optimum; }
    void cut_off(const char*) const { ++*losses; }
};

} // namespace

TEST_CASE("with cuts that leave one optimum, that one is found") {
    const auto models = oracle::random_cases(3000);
    std::size_t cut_off = 0, losses = 0, presolved = 0;
    for (std::uint64_t seed = 1; seed <= models; ++seed) {
        CAPTURE(seed);
        const auto m = oracle::random_model(seed, {.integers = 9, .reals = seed % 3, .rows = 7, .open_reals = false});
        const auto truth = oracle::exhaustive_optimum(m);
        if (truth.status != oracle::exhaustive_status::optimal) continue;
        for (const bool alone : {true, false}) {
            solve_options options;
            options.conflict_search = options.heuristics = !alone;
            const auto r =
                solve(m, options, supports{&m, truth.values, seed, &cut_off}, counts_losses{truth.values, &losses});
            REQUIRE(std::holds_alternative<optimal>(r.why));
            CHECK(r.objective == doctest::Approx(truth.objective));
            presolved += r.stats.presolved.variables < m.variables() ? 1 : 0;
        }
    }
    CHECK(losses == 0);
    CHECK(cut_off > 0);
    CHECK(presolved > 0);
    MESSAGE("points cut off: " << cut_off);
}

namespace {

/// Doesn't answer the first questions; then claims that nothing is better than the initial solution.
struct answers_late : starts {
    const knapsack* k;
    std::size_t first;
    std::size_t* calls;

    [[nodiscard]] std::vector<constraint> cuts_at(std::span<const double>) const {
        if (++*calls < first) return {};
        expression worth;
        for (const variable x : k->x)
            worth += k->m.cost(x) * x;
        return {std::move(worth) <= objective_value(k->m, values)};
    }
};

} // namespace

TEST_CASE("cuts are asked for at the nodes of the tree, and close them") {
    constexpr std::size_t never = 1'000'000;
    const heavy_knapsack k;
    auto options = plain();
    options.restarts = 0;
    const starts best{*solve(k.m).incumbent};
    const auto without = solve(k.m, options, best);
    REQUIRE(without.stats.nodes > 20);
    std::size_t calls_at_root = 0, calls = 0;
    auto root_only = options;
    root_only.node_limit = 1;
    static_cast<void>(solve(k.m, root_only, answers_late{best, &k, never, &calls_at_root}));
    REQUIRE(calls_at_root > 0);
    const auto stalled_conflicts = solve(k.m, options, answers_late{best, &k, never, &calls});
    CHECK(calls > calls_at_root);
    CHECK(stalled_conflicts.stats.nodes == without.stats.nodes);
    calls = 0;
    const auto r = solve(k.m, options, answers_late{best, &k, calls_at_root + 1, &calls});
    CHECK(r.objective == without.objective);
    CHECK(r.stats.nodes < without.stats.nodes);
    options.cuts = false;
    calls = 0;
    CHECK(solve(k.m, options, answers_late{best, &k, 0, &calls}).objective == without.objective);
    CHECK(calls == 0);
}

namespace {

/// Half spaces with the known optimum on their boundary and the point outside, one for every third of the columns.
struct supports_at_nodes {
    const knapsack* k;
    std::vector<double> optimum;

    [[nodiscard]] std::vector<constraint> cuts_at(std::span<const double> point) const {
        std::vector<constraint> cuts;
        for (std::size_t first = 0; first < 3; ++first) {
            expression body;
            for (std::size_t i = first; i < k->x.size(); i += 3) {
                const double shift = point[i] - optimum[i];
                body += std::round(4.0 * shift) * k->x[i];
            }
            const double limit = activity(body.terms(), optimum);
            cuts.push_back(std::move(body) <= limit);
        }
        return cuts;
    }
};

} // namespace

TEST_CASE("cuts at nodes never lose the optimum that they hold for, with any number of threads") {
    std::size_t losses = 0;
    for (std::size_t seed = 0; seed < 6; ++seed) {
        const heavy_knapsack k{seed};
        const auto best = solve(k.m);
        REQUIRE(best.incumbent.has_value());
        for (const std::size_t threads : {1U, 2U})
            for (const bool deterministic : {false, true}) {
                CAPTURE(seed);
                auto options = plain();
                options.threads = threads;
                options.deterministic = deterministic;
                const auto r = solve(k.m, options, supports_at_nodes{&k, *best.incumbent},
                                     counts_losses{*best.incumbent, &losses});
                CHECK(std::holds_alternative<optimal>(r.why));
                CHECK(r.objective == best.objective);
            }
    }
    CHECK(losses == 0);
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
