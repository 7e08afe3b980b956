#include "external_solvers/cbc.hpp"
#include "external_solvers/glpk.hpp"
#include "external_solvers/highs.hpp"
#include "oracle/milp_exhaustive.hpp"
#include "oracle/milp_models.hpp"
#include "oracle/milp_random.hpp"
#include <optpipe/milp/check.hpp>
#include <optpipe/milp/solve.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

using namespace optpipe::milp;
using namespace std::chrono_literals;

namespace {

bool close(double a, double b) { return std::abs(a - b) <= 1e-5 * std::max({1.0, std::abs(a), std::abs(b)}); }

solve_options twenty_seconds() {
    solve_options options;
    options.time_limit = 20s;
    return options;
}

/// Empty if the other solver's answer is consistent with ours.
template <class Solver> std::string disagreement(const Solver& solver, const model& m, const result& ours) {
    const auto theirs = solver(m, twenty_seconds());
    const bool same_status = theirs.why.index() == ours.why.index();
    // Solvers need not distinguish infeasible from unbounded.
    const auto has_no_optimum = [](const result& r) {
        return std::holds_alternative<infeasible>(r.why) || std::holds_alternative<unbounded>(r.why);
    };
    if (has_no_optimum(theirs) && has_no_optimum(ours)) return "";
    if (!same_status)
        return "it says " + std::string{status_of(theirs.why)} + ", we say " + std::string{status_of(ours.why)};
    if (!std::holds_alternative<optimal>(ours.why)) return "";
    if (!theirs.incumbent || !check(m, *theirs.incumbent, {1e-5}).empty()) return "its solution isn't feasible";
    return close(theirs.objective, ours.objective) ? ""
                                                   : "it worker_results " + std::to_string(theirs.objective) +
                                                         ", we find " + std::to_string(ours.objective);
}

template <class Solver> void compare_on_random_models(const Solver& solver) {
    constexpr std::uint64_t seeds = 60;
    MESSAGE(solver.name() << ", seeds 1 to " << seeds);
    for (std::uint64_t seed = 1; seed <= seeds; ++seed) {
        const auto m = oracle::random_model(seed);
        const auto wrong = disagreement(solver, m, solve(m));
        CHECK_MESSAGE(wrong.empty(), solver.name() << ", seed " << seed << ": " << wrong);
    }
}

template <class Solver> void compare_on_known_models(const Solver& solver) {
    for (const std::string name : {"lp/afiro", "lp/klein1", "lp/sc50a", "lp/seba", "mip/flugpl", "mip/egout",
                                   "pipeline/A_2x4_L100_unit", "pipeline/A_4x4_L075_real"}) {
        const auto known = oracle::known_models(name).front();
        const auto r = solver(known.read(), twenty_seconds());
        CHECK_MESSAGE(status_of(r.why) == known.status, solver.name() << ", " << name);
        if (known.status == "optimal") CHECK_MESSAGE(known.agrees(r.objective, 1e-5), solver.name() << ", " << name);
    }
}

template <class Solver> void compare(const std::optional<Solver>& solver) {
    if (!solver) {
        MESSAGE("skipped: " << Solver::name() << " is not installed");
        return;
    }
    compare_on_random_models(*solver);
    if (oracle::can_read_known_models()) compare_on_known_models(*solver);
}

} // namespace

TEST_CASE("CBC agrees, where it is installed") { compare(external::cbc_solver::find()); }

TEST_CASE("GLPK agrees, where it is installed") { compare(external::glpk_solver::find()); }

TEST_CASE("HiGHS agrees, where it is installed") { compare(external::highs_solver::find()); }

TEST_CASE("what HiGHS writes is read: status, point, bound") {
    model m;
    m.add_binary();
    m.add_variable(0.0, 9.0);
    const external::scratch_folder folder;
    const auto read = [&](std::string_view solution, std::string_view log) {
        folder.write("solution", solution);
        folder.write("log", log);
        return external::highs_format::read(folder, m);
    };
    const auto best = read("Model status\nOptimal\n\n# Primal solution values\nFeasible\nObjective -2\n"
                           "# Columns 2\nx0 1\nx1 2.5\n# Rows 0\n\n# Dual solution values\nNone\n",
                           "  Primal bound      -2\n  Dual bound        -2.5\n");
    CHECK(best.why == termination{optimal{}});
    CHECK(best.values == std::vector{1.0, 2.5});
    CHECK(best.bound == -2.5);
    const auto none = read("Model status\nInfeasible\n\n# Primal solution values\nNone\n", "");
    CHECK(none.why == termination{infeasible{}});
    CHECK((!none.values && !none.bound));
    CHECK(read("Model status\nTime limit reached\n", "").why == termination{stopped{limit::time}});
    CHECK(!read("Model status\nOptimal\n\n# Primal solution values\nFeasible\n# Columns 2\nx0 1\n", "").values);
    CHECK(read("", "").why == termination{stopped{limit::numerics}});
}

TEST_CASE("a program that isn't there is an error, and one that says nothing proves nothing") {
    model m;
    m.add_binary();
    CHECK_THROWS_AS(external::cbc_solver{"/no/such/cbc"}(m, {}), optpipe::error);
    const auto path = external::find_program("true");
    REQUIRE(path);
    const auto silent = external::cbc_solver{*path}(m, {});
    CHECK((std::holds_alternative<stopped>(silent.why) && !silent.incumbent && silent.bound == -infinity));
    const auto silent_too = external::glpk_solver{*path}(m, {});
    CHECK((std::holds_alternative<stopped>(silent_too.why) && !silent_too.incumbent));
}

TEST_CASE("whoever asks a program to stop waits no longer") {
    const auto path = external::find_program("yes"); // writes until it is ended
    REQUIRE(path);
    std::stop_source stop;
    stop.request_stop();
    const external::scratch_folder folder;
    external::child_process child{{*path}, folder / "log"};
    CHECK_FALSE(child.wait(100s, stop.get_token()));
}
