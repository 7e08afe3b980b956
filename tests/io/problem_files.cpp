// Every problem file of the project (some under the sanitizers), with every builder that applies: valid by two
// independent readings of the rules, never below the bound, and as good as before.
#include "oracle/problem_files.hpp"

#include "optpipe/io/json.hpp"
#include "optpipe/schedule.hpp"
#include "oracle/golden.hpp"
#include "oracle/reference_checker.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <map>
#include <string>
#include <type_traits>

namespace {

using namespace optpipe;

/// problem, busy, published method, published objective, best known objective or nothing
std::map<std::string, double> best_known_objectives() {
    std::map<std::string, double> best;
    for (const auto& row : oracle::rows_of("reference_objectives.csv")) {
        best[row[0]] = std::stod(row[3]);
        if (row.size() > 4) best[row[0]] = std::min(best[row[0]], std::stod(row[4]));
    }
    return best;
}

/// The objective of a builder's schedule; unlimited if it has none.
template <class Builder> duration checked_objective(const problem& p, const Builder& builder, duration bound) {
    CAPTURE(builder.name);
    const auto built = build_schedule(p, builder);
    if (!built) {
        CHECK(built.why().reason != refusal_reason::not_executable);
        return duration::unlimited();
    }
    CHECK(validate(p, *built).empty());
    const auto m = measure(p, *built);
    // The second reading is quadratic.
    if (built->operations.size() < 2000) {
        const auto verdict = oracle::judge(p, *built);
        CHECK(verdict.valid());
        CHECK(m.objective.value() == doctest::Approx(verdict.objective));
    }
    CHECK(m.objective >= (1.0 - 1e-9) * bound);
    return m.objective;
}

} // namespace

TEST_CASE("every problem file, every builder") {
    const auto best_known = best_known_objectives();
    CHECK(best_known.size() == oracle::all_problem_files);
    for (const auto& file : oracle::problem_files()) {
        const auto p = read_problem(file);
        CAPTURE(p.name);
        const bool quick = p.graph.cells() <= 256;
        const auto bound = (quick ? strong_bounds_of(p) : bounds_of(p)).best();
        auto best_published = duration::unlimited();
        for_each_builder([&](const auto& builder) {
            if constexpr (!std::is_same_v<std::decay_t<decltype(builder)>, adaptive_builder<>>)
                best_published = std::min(best_published, checked_objective(p, builder, bound));
        });
        CHECK(best_published.value() >= bound.value() * (1.0 - 1e-9));
        const auto planned = checked_objective(p, adaptive_builder<>{.effort = 2'000'000}, bound);
        CHECK(!planned.is_unlimited());
        CHECK(planned <= checked_objective(p, gpipe, bound));
        CHECK(planned <= checked_objective(p, one_forward_one_backward, bound));

        const auto known = best_known.find(p.name);
        REQUIRE(known != best_known.end());
        CHECK(bound.value() <= known->second * (1.0 + 1e-6));
        // Close to the best known objective, with a fraction of the usual effort.
        CHECK(planned.value() <= 1.10 * known->second);
    }
}
