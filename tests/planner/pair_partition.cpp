#include "../../bench/expert_layers.hpp"
#include "optpipe/pipeline/problem.hpp"
#include "optpipe/planner/partition.hpp"
#include "optpipe/schedule/time/validate.hpp"
#include "oracle/random_cases.hpp"

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>

using namespace optpipe;
using expert_layers::bottleneck;
using expert_layers::drawn;
using expert_layers::most_even;

TEST_CASE("the division that is most even one operation after the other isn't the best one in pairs") {
    double sum = 0.0;
    constexpr std::size_t cases = 8;
    for (std::uint64_t seed = 1; seed <= cases; ++seed) {
        const auto p = drawn(seed, 12, 4, 16);
        const auto ratio = bottleneck(p, most_even(p, false)) / bottleneck(p, most_even(p, true));
        CHECK(ratio >= 1.0);
        sum += ratio;
    }
    CHECK(sum / cases > 1.14); // as published (Tessera, OSDI 2026)
}

TEST_CASE("plan_partition loses neither to the division that is most even in pairs nor to the one that is without") {
    // The same deterministic plan for each division.
    plan_options how;
    how.without = {"adaptive", "order-search", "cp", "propagation", "milp"};
    std::size_t better = 0;
    constexpr std::uint64_t last_seed = 24;
    for (std::uint64_t seed = last_seed; seed > last_seed - oracle::random_cases(last_seed); --seed) {
        CAPTURE(seed);
        const auto p = drawn(seed, 8, 3, 4);
        const auto ours = plan_partition(p, how);
        REQUIRE(ours);
        CHECK(validate(ours->pipeline, ours->planned.schedule).empty());
        CHECK(ours->bound <= ours->planned.bound);
        for (const bool in_pairs : {false, true}) {
            const auto other = plan_layout(p, 0, most_even(p, in_pairs), how);
            REQUIRE(other);
            const auto ratio = other->planned.objective / ours->planned.objective;
            CHECK(ratio >= 1.0 - 1e-9);
            CHECK(ours->bound <= other->planned.objective);
            better += ratio > 1.05 ? 1 : 0;
        }
    }
    CHECK(better >= 1);
}
