#include "optpipe/planner/bounds/single_device.hpp"

#include "optpipe/planner/plan.hpp"
#include "optpipe/schedule/bounds/structural_bounds.hpp"
#include "optpipe/schedule/time/evaluate.hpp"
#include "optpipe/schedule/time/simulate.hpp"
#include "optpipe/schedule/time/validate.hpp"
#include "oracle/exhaustive.hpp"
#include "oracle/random_cases.hpp"
#include "oracle/random_problem.hpp"
#include "oracle/spelled.hpp"

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>

using namespace optpipe;

namespace {

/// Layers of a model on one device: kept, recomputed in part, or recomputed as a whole.
problem layers_on_one_device(std::size_t layers, std::size_t microbatches, double limit) {
    per_stage<rank> where(layers);
    problem p{any_graph{1, microbatches, placement::map<>{where}}, per_stage<stage_costs>(layers)};
    for (const stage s : p.graph.all_stages()) {
        const double longer = s.position() + 1 == layers ? 2.5 : 1.0;
        p.set_stage(s, {duration{11.7 * longer},
                        duration{14.4 * longer},
                        duration{8.93 * longer},
                        memory_size{0.772},
                        memory_size{0.617},
                        {}});
        p.storage[s].push_back({"selective", memory_size{0.463}, duration{1.5}, {}, {}, {}});
        p.storage[s].push_back({"full", memory_size{0.039}, {}, duration{11.7}, {}, {}});
    }
    p.memory_limit[rank{}] = memory_size{limit};
    return p;
}

} // namespace

TEST_CASE("on one device, no schedule is shorter than the bound") {
    const oracle::problem_ranges ranges{
        .ranks = 1, .stages = 3, .microbatches = 2, .cells = 4, .offloading_percent = 60, .storage_percent = 100};
    int proven = 0;
    int stronger = 0;
    for (std::uint64_t i = 0; i < oracle::random_cases(250); ++i) {
        CAPTURE(i);
        oracle::random_numbers random{1'000'003 * 91 + i};
        const auto given = oracle::make_random_problem(random, ranges);
        const auto& p = given.problem;
        if (p.graph.ranks() != 1 || !is_plain(p)) continue;
        const auto best = oracle::exhaustive_optimum(p, given.grid, 4'000);
        if (!best.proven || !best.objective) continue;
        ++proven;
        INFO(oracle::spell(best.schedule));
        const auto found = single_device(p);
        CHECK(found.bound.value() <= *best.objective * (1.0 + 1e-9));
        CHECK(single_device(p, {}, 2).bound <= found.bound);
        stronger += found.bound.value() > bounds_of(p).best().value() * (1.0 + 1e-6) ? 1 : 0;
    }
    CHECK(proven >= static_cast<int>(oracle::random_cases(150)));
    CHECK(stronger >= static_cast<int>(oracle::random_cases(10)));
}

TEST_CASE("without offloading, the best choice is a schedule as short as the bound") {
    for (const std::size_t microbatches : {1U, 4U})
        for (const double limit : {3.0, 8.0, 12.0, 40.0}) {
            CAPTURE(limit);
            const auto p = layers_on_one_device(32, microbatches, limit);
            const auto found = single_device(p);
            REQUIRE(found.best);
            const auto timed = simulate(p, *found.best);
            REQUIRE(timed);
            CHECK(validate(p, *timed).empty());
            CHECK(objective_of(p, *timed).value() == doctest::Approx(found.bound.value()));
            CHECK(found.bound.value() >= bounds_of(p).best().value() * (1.0 - 1e-9));
        }
    CHECK_FALSE(single_device(layers_on_one_device(32, 1, 1.0)).best);
}

TEST_CASE("plan proves what one device does, without offloading") {
    for (const double limit : {8.0, 12.0}) {
        const auto p = layers_on_one_device(32, 4, limit);
        plan_options options;
        options.threads = 1;
        const auto planned = plan(p, options);
        REQUIRE(planned);
        CHECK(planned->why == plan_end::optimal);
        CHECK(planned->objective.value() == doctest::Approx(single_device(p).bound.value()));
    }
}

TEST_CASE("the least recomputation, counted by hand: 25 layers in part and 7 as a whole") {
    // 32 stashes take 24.704; 12.704 is to be saved, 0.309 at 1.5 or 0.733 at 11.7 each.
    const auto p = layers_on_one_device(32, 1, 12.0);
    const double work = 32 * (11.7 + 14.4 + 8.93) + 1.5 * (11.7 + 14.4 + 8.93);
    CHECK(single_device(p).bound.value() == doctest::Approx(work + 25 * 1.5 + 7 * 11.7));
}
