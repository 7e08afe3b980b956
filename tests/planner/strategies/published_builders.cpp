#include "optpipe/planner/strategies/published_builders.hpp"

#include "optpipe/pipeline/problem.hpp"
#include "optpipe/planner/portfolio/run_log.hpp"
#include "optpipe/planner/portfolio/search_state.hpp"
#include "optpipe/schedule/builders/adaptive.hpp"
#include "optpipe/schedule/builders/method_name.hpp"
#include "optpipe/schedule/construct/uniform_storage.hpp"
#include "optpipe/schedule/time/evaluate.hpp"
#include "oracle/random_problem.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

using namespace optpipe;
using namespace std::chrono_literals;

namespace {

problem problem_with_options(std::uint64_t seed) {
    oracle::problem_ranges ranges{.ranks = 4, .microbatches = 8, .cells = 32};
    ranges.storage_percent = 100;
    random_numbers random{seed};
    return oracle::make_random_problem(random, ranges).problem;
}

/// The result of each builder in a search whose deadline is far away.
std::vector<builder_result> results_in_time(const problem& p) {
    search_limits limits;
    limits.deadline = std::chrono::steady_clock::now() + 1h;
    search_state state{p, limits};
    run_log log;
    return run_published_builders(state, {}, 1, log, {[] {}, [] {}}).results;
}

duration result_of(const std::vector<builder_result>& results, const std::string& method) {
    const auto found = std::find_if(results.begin(), results.end(),
                                    [&](const builder_result& each) { return each.method == method; });
    REQUIRE(found != results.end());
    return found->objective.value_or(duration::unlimited());
}

/// The objective of the constructive planner with one storage option and 1 / `part` of its effort.
duration constructed(const problem& p, const uniform_choice<dynamic>& choice, std::size_t part) {
    adaptive_builder<> build;
    build.effort /= part;
    const auto made = build_uniform_schedule(p, build, choice.options);
    return made ? objective_of(p, *made) : duration::unlimited();
}

} // namespace

TEST_CASE("in time, the constructive planner with a storage option is as good as alone, not only after a few trials") {
    std::size_t few_are_worse = 0;
    for (std::uint64_t seed = 9; seed <= 12; ++seed) { // with seed 12, a few trials find less
        CAPTURE(seed);
        const auto p = problem_with_options(seed);
        const auto choices = uniform_choices(p);
        if (is_described_by_costs(p) || choices.empty()) continue;
        const auto results = results_in_time(p);
        for (const auto& choice : choices) {
            const std::string option{choice.name.view()};
            CAPTURE(option);
            const auto alone = constructed(p, choice, choices.size());
            CHECK(result_of(results, method_with_storage("adaptive", option)) <= alone);
            const auto after_few = constructed(p, choice, adaptive_builder<>{}.effort);
            few_are_worse += alone < after_few ? 1 : 0;
        }
    }
    CHECK(few_are_worse > 0);
}
