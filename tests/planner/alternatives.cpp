#include "optpipe/planner/alternatives.hpp"

#include "optpipe/pipeline/make_problem.hpp"
#include "optpipe/planner/plan.hpp"
#include "optpipe/schedule/time/validate.hpp"

#include <doctest/doctest.h>

#include <chrono>
#include <cstddef>
#include <vector>

using namespace optpipe;

namespace {

/// Two ranks and 32 samples in a step: an operation takes half a unit, and a half for each sample.
problem of_size(std::size_t microbatches, double limit) {
    const double samples = 32.0 / static_cast<double>(microbatches);
    const duration each{0.5 + 0.5 * samples};
    problem p{to_any_graph(graph<dynamic, dynamic>{2, microbatches}),
              per_stage<stage_costs>(2, {each, each, each, memory_size{samples}, memory_size{0.5 * samples}, {}})};
    p.memory_limit = per_rank<memory_size>(2, memory_size{limit});
    return p;
}

} // namespace

TEST_CASE("of several problems, the one with the shortest step is chosen, and hopeless ones are dropped") {
    const std::vector<problem> problems{of_size(2, 12.0), of_size(4, 12.0), of_size(8, 12.0), of_size(32, 12.0)};
    for (const bool is_limited : {false, true}) {
        plan_options options;
        options.threads = 1;
        if (is_limited) options.time_limit = std::chrono::seconds{1};
        const auto found = plan_alternatives(problems, options);
        REQUIRE(found);
        CHECK(found->chosen == 2);
        REQUIRE(found->all.size() == 4);
        CHECK(found->all[0].refused); // a microbatch of 16 samples doesn't fit
        CHECK_FALSE(found->all[3].planned);
        CHECK_FALSE(found->all[3].refused);
        CHECK(found->all[3].bound >= found->best().objective);
        CHECK(found->bound <= found->best().objective);
        CHECK(validate(problems[2], found->best().schedule).empty());
        CHECK(found->best().objective == plan(problems[2], options)->objective);
    }
}

TEST_CASE("if none of several problems has a schedule, the reason is that of one of them") {
    const std::vector<problem> problems{of_size(2, 1.0), of_size(4, 1.0)};
    const auto found = plan_alternatives(problems);
    REQUIRE_FALSE(found);
    CHECK(describe(found.why()).starts_with("memory_limit[0]"));
}
