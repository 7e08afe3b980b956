#include "optpipe/formulation/values_of.hpp"

#include "optpipe/formulation/formulate.hpp"
#include "optpipe/formulation/priority_schedule.hpp"
#include "optpipe/formulation/schedule_of.hpp"
#include "optpipe/io/json_problem.hpp"
#include "optpipe/milp/check.hpp"
#include "optpipe/schedule/builders/all.hpp"
#include "optpipe/schedule/time/evaluate.hpp"
#include "optpipe/schedule/time/validate.hpp"
#include "oracle/random_problem.hpp"
#include "oracle/random_schedule.hpp"
#include "schedule/quick_builders.hpp"

#include <doctest/doctest.h>

#include <memory>
#include <string>

using namespace optpipe;
using formulation::formulate;
using formulation::overtaking;

namespace {

problem file(const std::string& name) {
    return read_problem(OPTPIPE_SOURCE_DIR "/tests/data/problems/" + name + ".json");
}

std::shared_ptr<const formulation::formulated> model_of(const problem& p, overtaking how,
                                                        duration horizon = duration::unlimited()) {
    formulation::options o;
    o.overtaking = how;
    o.horizon = horizon;
    const auto f = formulate(p, o);
    REQUIRE(f.has_value());
    return *f;
}

/// Whether the model has a point for the schedule; if so, the point converts back to a schedule that isn't worse.
bool is_point(const problem& p, const formulation::formulated& f, const schedule& s) {
    const auto point = values_of(f, s);
    if (!point) {
        CHECK(point.why().reason == refusal_reason::does_not_apply);
        CHECK(f.keeps_order);
        return false;
    }
    const auto faults = milp::check(f.model, *point);
    CHECK_MESSAGE(faults.empty(), milp::describe(f.model, faults.front()));
    const auto objective = objective_of(p, s);
    CHECK(milp::objective_value(f.model, *point) == doctest::Approx(objective.value()));
    const auto back = schedule_of(f, *point);
    // Transfers belong to no microbatch.
    if (f.is_pooled && !back) return true;
    REQUIRE(back.has_value());
    CHECK(is_valid(p, *back));
    CHECK(objective_of(p, *back).value() <= objective.value() * (1.0 + 1e-9));
    return true;
}

} // namespace

TEST_CASE("what builders make is a point of the model") {
    int points = 0;
    for (const auto* name : {"unit-p3-m6-mem075", "unit-p4-m8-mem100", "skew-p4-m12-mem075", "v-unit-p4-m12-k6",
                             "offload-p2-m4-mem050-k100", "offload-p4-m8-mem075-k050", "llama2-7b-4k-p4"}) {
        const auto p = file(name);
        const auto restricted = model_of(p, overtaking::forbidden), exact = model_of(p, overtaking::allowed);
        for_each_quick_builder([&](const auto& build) {
            INFO(name << ": " << build.name);
            const auto built = build_schedule(p, build);
            if (!built || !is_valid(p, *built)) return;
            points += is_point(p, *restricted, *built) ? 1 : 0;
            CHECK(is_point(p, *exact, *built));
            CHECK(is_point(p, *model_of(p, overtaking::pooled), *built));
            // A horizon that it just meets leaves it in.
            CHECK(is_point(p, *model_of(p, overtaking::allowed, objective_of(p, *built)), *built));
        });
    }
    CHECK(points > 25);
}

TEST_CASE("random schedules are points of the exact model and of the pooled one, with any overtaking") {
    int points = 0, refused = 0;
    for (std::uint64_t seed = 1; seed <= 400; ++seed) {
        random_numbers random{seed};
        const auto made = oracle::make_random_problem(random);
        const auto& p = made.problem;
        const auto exact = model_of(p, overtaking::allowed), restricted = model_of(p, overtaking::forbidden);
        const auto pooled = model_of(p, overtaking::pooled);
        for (int k = 0; k < 5; ++k) {
            const auto timed = oracle::random_schedule(random, made);
            if (objective_of(p, timed) > p.serial_time()) continue;
            INFO("seed " << seed << ", schedule " << k);
            CHECK(is_point(p, *exact, timed));
            CHECK(is_point(p, *pooled, timed));
            ++points;
            refused += is_point(p, *restricted, timed) ? 0 : 1;
        }
    }
    MESSAGE(points << " schedules, " << refused << " with overtaking and offloading");
    CHECK(points > 500);
    CHECK(refused > 10);
}

TEST_CASE("lists of storage options are refused, as the model would be of another problem") {
    const auto p = read_problem(OPTPIPE_SOURCE_DIR "/tests/data/storage/store-p2-m4-k100.json");
    const auto f = formulate(p);
    REQUIRE_FALSE(f.has_value());
    CHECK(f.why().sentence == std::string_view{"the model knows no lists of storage options"});
}
