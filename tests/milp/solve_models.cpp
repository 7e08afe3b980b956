#include "oracle/milp_models.hpp"
#include <optpipe/milp/check.hpp>
#include <optpipe/milp/solve.hpp>

#include <doctest/doctest.h>

#include <string>
#include <string_view>

using namespace optpipe::milp;

namespace {

void prove(std::string_view prefix, const solve_options& options) {
    if (!oracle::can_read_known_models()) return;
    for (const auto& known : oracle::known_models(prefix)) {
        CAPTURE(known.name);
        const auto m = known.read();
        const auto found = solve(m, options);
        if (known.status == "infeasible") {
            CHECK(std::holds_alternative<infeasible>(found.why));
            CHECK(!found.incumbent.has_value());
            continue;
        }
        CHECK(std::holds_alternative<optimal>(found.why));
        CHECK(known.agrees(found.objective));
        CHECK(known.agrees(found.bound));
        REQUIRE(found.incumbent.has_value());
        CHECK(check(m, *found.incumbent, options.tolerance).empty());
        CHECK(found.stats.given.variables == m.variables());
        CHECK(found.stats.presolved.variables <= m.variables());
    }
}

} // namespace

TEST_CASE("models of the field are solved to proven optimality") { prove("mip/", {}); }

TEST_CASE("plain disjunctive models of pipelines are solved to proven optimality") {
    for (const auto* prefix : {"pipeline/A_2x4", "pipeline/A_4x4", "pipeline/A_3x6", "pipeline/A_4x8", "pipeline/B_2x4",
                               "pipeline/B_4x4", "pipeline/B_3x6"})
        prove(prefix, {});
}

TEST_CASE("the tree alone and the conflict search alone prove small ones too") {
    solve_options options;
    options.conflict_search = false;
    prove("pipeline/A_2x4", options);
    options.conflict_search = true;
    options.tree_search = false;
    options.presolve = false;
    prove("pipeline/B_2x4", options);
}
