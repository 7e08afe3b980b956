#include "judge.hpp"
#include "milp/lp/relaxation.hpp"
#include "oracle/milp_models.hpp"
#include <optpipe/milp/lp/simplex.hpp>

#include <doctest/doctest.h>

#include <cmath>
#include <string>

using namespace optpipe::milp;

namespace {

std::string text(lp_status s) {
    switch (s) {
    case lp_status::optimal: return "optimal";
    case lp_status::infeasible: return "infeasible";
    case lp_status::unbounded: return "unbounded";
    case lp_status::cutoff: return "cutoff";
    case lp_status::iteration_limit:
    case lp_status::stopped: return "stopped";
    case lp_status::numerical_trouble: return "numerical trouble";
    }
    return {};
}

void check_all(const simplex_options& options) {
    if (!oracle::can_read_known_models()) return;
    const auto models = oracle::known_models("lp/");
    CHECK(models.size() == 34);
    for (const auto& known : models) {
        INFO(known.name);
        const auto m = known.read();
        simplex s{relaxation_of(m), options};
        const auto status = s.solve();
        CHECK(text(status) == known.status);
        CHECK(judge::objection(s, status) == "");
        if (status != lp_status::optimal) continue;
        CHECK(known.agrees(s.objective() + m.offset(), 1e-8));
        CHECK(s.dual_bound() == doctest::Approx(s.objective()).epsilon(1e-7));
    }
}

} // namespace

TEST_CASE("published optima are reached") { check_all({}); }

TEST_CASE("published optima are reached without scaling") { check_all({.scaling = false}); }

TEST_CASE("published optima are reached with few updates") { check_all({.updates = 20}); }

TEST_CASE("a basis that only lacks dual feasibility is left by the primal method") {
    if (!oracle::can_read_known_models()) return;
    for (const auto& known : oracle::known_models("lp/grow7")) {
        simplex s{relaxation_of(known.read())};
        CHECK(s.solve() == lp_status::optimal);
        CHECK(s.iterations() < 250); // the dual method needs nearly twice as many
    }
}
