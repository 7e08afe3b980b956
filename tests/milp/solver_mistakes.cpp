#include "archetypes/milp_solvers.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <string_view>

#if defined(OPTPIPE_HAS_MILP)
#include "external_solvers/cbc.hpp"
#include "external_solvers/glpk.hpp"
#include <optpipe/milp/solve.hpp>
#endif

using namespace optpipe;

namespace {

/// Gives the same answer for every model.
struct stubborn {
    milp::result answer;
    milp::result operator()(const milp::model& m, const milp::solve_options&) {
        auto r = answer;
        if (r.incumbent) r.incumbent->assign(m.variables(), 0.0);
        return r;
    }
    std::string_view name() const { return "stubborn"; }
};

} // namespace

TEST_CASE("a solver that gives up makes no mistake") {
    CHECK(testing::solver_mistakes(testing::archetype::solver{}).empty());
}

TEST_CASE("solvers that lie are found out") {
    constexpr double infinity = std::numeric_limits<double>::infinity();
    stubborn lies;
    lies.answer.why = milp::infeasible{};
    CHECK(testing::solver_mistakes(lies).size() >= 3);
    lies.answer.why = milp::optimal{};
    CHECK(testing::solver_mistakes(lies).size() == 5);
    lies.answer.why = milp::stopped{};
    lies.answer.incumbent.emplace();
    CHECK(testing::solver_mistakes(lies).size() >= 3);
    lies.answer.incumbent.reset();
    lies.answer.bound = infinity;
    CHECK(testing::solver_mistakes(lies).size() == 2);
}

#if defined(OPTPIPE_HAS_MILP)
TEST_CASE("our solver, and those that are installed, make no mistake") {
    CHECK(testing::solver_mistakes(milp::own_solver{}).empty());
    if (const auto cbc = milp::external::cbc_solver::find())
        CHECK(testing::solver_mistakes(*cbc).empty());
    else
        MESSAGE("skipped: CBC is not installed");
    if (const auto glpk = milp::external::glpk_solver::find())
        CHECK(testing::solver_mistakes(*glpk).empty());
    else
        MESSAGE("skipped: GLPK is not installed");
}
#endif
