#include "optpipe/planner/time_for_cheaper_storage.hpp"

#include "optpipe/io/json_problem.hpp"
#include "optpipe/pipeline/problem.hpp"
#include "optpipe/planner/plan.hpp"
#include "optpipe/schedule/time/measure.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <stop_token>
#include <string_view>

using namespace optpipe;
using namespace std::chrono_literals;

namespace {

problem some_problem(std::size_t microbatches, bool with_options) {
    stage_costs unit;
    unit.forward = unit.backward_input = unit.backward_weight = duration{1.0};
    unit.activation = unit.weight_stash = memory_size{1.0};
    problem p{to_any_graph(graph<dynamic, dynamic>{4, microbatches}), per_stage<stage_costs>(4, unit)};
    if (with_options)
        for (auto& options : p.storage)
            options = {keep_stash(unit), {"full", memory_size{0.25}, {}, duration{1.0}, {}, {}}};
    return p;
}

bool has_contribution(const plan_result& planned, std::string_view name) {
    return std::any_of(planned.contributions.begin(), planned.contributions.end(),
                       [&](const contribution& each) { return each.name == name; });
}

} // namespace

TEST_CASE("a plan with a time limit has no transfers where one without them is as short") {
    // One of two builders offloads 26 stashes; the sums of their steps differ in the last digit.
    const auto p = read_problem(OPTPIPE_SOURCE_DIR "/tests/data/equal-with-fewer-transfers.json");
    for (const std::size_t threads : {1, 2}) {
        const auto planned = plan(p, {.time_limit = 300s, .threads = threads}, {});
        REQUIRE(planned);
        CHECK(planned->objective.value() == doctest::Approx(94.32));
        CHECK(measure(p, planned->schedule).offloads == 0);
    }
}

TEST_CASE("after a stop request, storage options stay as they are") {
    const auto p = read_problem(OPTPIPE_SOURCE_DIR "/tests/data/problems/offload-p4-m8-mem050-k050.json");
    for (const bool stops : {false, true}) {
        std::stop_source source;
        plan_options options{.stop = source.get_token()};
        options.progress = [&](const search_progress& step) {
            if (stops && step.incumbent) source.request_stop();
        };
        const auto planned = plan(p, options, {});
        REQUIRE(planned);
        CHECK((planned->why == plan_end::stop_request) == stops);
        CHECK(has_contribution(*planned, "cheaper-storage") != stops);
    }
}

TEST_CASE("of a time limit a twentieth at most is set aside for cheaper storage options, and no more than they take") {
    CHECK(detail::time_for_cheaper_storage(some_problem(10'000, false), 10s).count() == 0.0);
    const auto few = detail::time_for_cheaper_storage(some_problem(4, true), 10s);
    const auto many = detail::time_for_cheaper_storage(some_problem(10'000, true), 10s);
    CHECK(few.count() > 0.0);
    CHECK(few < many);
    CHECK(many <= 10s * 0.05);
    CHECK(detail::time_for_cheaper_storage(some_problem(10'000, true), 1s).count() == doctest::Approx(0.05));
    CHECK(detail::time_for_cheaper_storage(some_problem(10'000, true), 0s).count() == 0.0);
    // It doesn't grow with the limit beyond the time that it needs.
    CHECK(detail::time_for_cheaper_storage(some_problem(4, true), 1000s) == few);
}
