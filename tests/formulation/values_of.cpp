#include "optpipe/formulation/values_of.hpp"

#include "formulation/model_checks.hpp"
#include "optpipe/formulation/formulate.hpp"
#include "optpipe/formulation/priority_schedule.hpp"
#include "optpipe/io/json_problem.hpp"
#include "optpipe/schedule/builders/all.hpp"
#include "optpipe/schedule/time/evaluate.hpp"
#include "optpipe/schedule/time/simulate.hpp"
#include "optpipe/schedule/time/validate.hpp"
#include "oracle/random_problem.hpp"
#include "oracle/random_schedule.hpp"
#include "schedule/quick_builders.hpp"

#include <doctest/doctest.h>

#include <memory>
#include <string>

using namespace optpipe;
using namespace model_checks;
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
            // It stays a point with its own objective as horizon.
            CHECK(is_point(p, *model_of(p, overtaking::allowed, objective_of(p, *built)), *built));
        });
    }
    CHECK(points > 25);
}

TEST_CASE("random schedules of graphs are points of the model") {
    int points = 0;
    for (std::uint64_t seed = 1; seed <= 300; ++seed) {
        random_numbers random{seed};
        oracle::problem_ranges ranges;
        ranges.storage_percent = seed % 3 == 0 ? 100 : 0;
        ranges.graph_percent = 100;
        const auto made = oracle::make_random_problem(random, ranges);
        const auto& p = made.problem;
        if (is_plain(p)) continue;
        const auto exact = model_of(p, overtaking::allowed);
        for (int k = 0; k < 3; ++k) {
            auto timed = simulate(p, oracle::random_order(random, p));
            REQUIRE(timed);
            INFO("seed " << seed << ", schedule " << k);
            CHECK(is_point(p, *exact, *timed));
            ++points;
        }
    }
    CHECK(points > 600);
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
