// Builders that make pairs, against the closed forms of their step times (Victarry, PP-Schedule-Visualization).
#include "optpipe/schedule/builders/combined.hpp"
#include "optpipe/schedule/builders/dual_pipe_v.hpp"
#include "optpipe/schedule/builders/gpipe.hpp"
#include "optpipe/schedule/builders/interleaved.hpp"
#include "optpipe/schedule/time/evaluate.hpp"
#include "optpipe/schedule/time/measure.hpp"
#include "optpipe/schedule/time/validate.hpp"
#include "schedule/pair_problems.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

namespace {

using namespace optpipe;

template <class Builder> measures built(const problem& p, const Builder& build) {
    const auto s = build_schedule(p, build);
    REQUIRE_MESSAGE(s, describe(s.why()));
    CHECK(validate(p, *s).empty());
    return measure(p, *s);
}

struct published_cell {
    std::size_t ranks;
    std::size_t microbatches;
    double pair;
    double dual_pipe_v;
    double combined;
};
constexpr published_cell published[] = {
    {4, 16, 4, 76, 78},    {4, 16, 5, 89, 91.5},    {4, 16, 5.5, 95.5, 98.25},    {4, 16, 6, 102, 105},
    {4, 32, 4, 140, 142},  {4, 32, 5, 169, 171.5},  {4, 32, 5.5, 183.5, 186.25},  {4, 32, 6, 198, 201},
    {8, 32, 4, 152, 158},  {8, 32, 5, 179, 185.5},  {8, 32, 5.5, 192.5, 199.25},  {8, 32, 6, 206, 213},
    {8, 64, 4, 280, 286},  {8, 64, 5, 339, 345.5},  {8, 64, 5.5, 368.5, 375.25},  {8, 64, 6, 398, 405},
    {16, 64, 4, 304, 318}, {16, 64, 5, 359, 373.5}, {16, 64, 5.5, 386.5, 401.25}, {16, 64, 6, 414, 429}};

double dual_pipe_v_form(double p, double m, double pair) {
    constexpr double f = 1.0;
    constexpr double b = 2.0;
    constexpr double d = 1.0;
    constexpr double w = 1.0;
    return (p - 1) * f + 2 * p * f + (2 * (m - p) - 1 + p - 1) * pair / 2 + (2 * p - 1) * d + w + 2 * b + f;
}
double combined_form(double p, double m, double pair) {
    constexpr double both = 3.0; // F and B of a stage
    return (p - 1) * both + (p + 1) * both + (2 * m - p - 1) * pair / 2;
}

} // namespace

TEST_CASE("DualPipeV and combined 1F1B take the published times") {
    for (const auto& [ranks, microbatches, pair, dual, combined] : published) {
        CAPTURE(ranks);
        CAPTURE(microbatches);
        CAPTURE(pair);
        CHECK(built(pair_problem(ranks, microbatches, pair, true), dual_pipe_v).objective.value() == dual);
        CHECK(built(pair_problem(ranks, microbatches, pair, false), combined_1f1b).objective.value() == combined);
    }
}

TEST_CASE("the times follow the closed forms elsewhere, too") {
    for (const std::size_t ranks : {2U, 3U, 5U, 6U})
        for (const std::size_t rounds : {2U, 3U, 5U}) {
            const auto microbatches = rounds * ranks;
            CAPTURE(ranks);
            CAPTURE(microbatches);
            const auto p = static_cast<double>(ranks);
            const auto m = static_cast<double>(microbatches);
            CHECK(built(pair_problem(ranks, microbatches, 4.5, true), dual_pipe_v).objective.value() ==
                  doctest::Approx(dual_pipe_v_form(p, m, 4.5)));
            CHECK(built(pair_problem(ranks, microbatches, 4.5, false), combined_1f1b).objective.value() ==
                  doctest::Approx(combined_form(p, m, 4.5)));
        }
}

TEST_CASE("DualPipeV with pairs holds as many stashes as without") {
    auto p = pair_problem(4, 16, 5, true);
    const auto with = built(p, dual_pipe_v);
    p.overlaps = {};
    const auto without = built(p, dual_pipe_v);
    CHECK(with.peak_memory == without.peak_memory);
    CHECK(with.pairs == 89);
    CHECK(without.pairs == 0);
    CHECK(without.objective.value() == 99.0);
}

TEST_CASE("combined 1F1B has any number of microbatches, and needs pairs, a loop, and two stages per rank") {
    for (std::size_t microbatches = 1; microbatches < 9; ++microbatches) {
        CAPTURE(microbatches);
        built(pair_problem(3, microbatches, 5, false), combined_1f1b);
        built(pair_problem(3, microbatches, 5, true), dual_pipe_v);
    }
    auto p = pair_problem(4, 8, 5, false);
    p.overlaps = {};
    CHECK_FALSE(build_schedule(p, combined_1f1b));
    CHECK_FALSE(build_schedule(pair_problem(4, 8, 5, true), combined_1f1b));
}

TEST_CASE("pairs that the problem doesn't have are left out; of slices, neighbours are merged") {
    auto p = pair_problem(4, 16, 4, true);
    const auto all = p.overlaps;
    p.overlaps = {};
    for (const overlap& each : all)
        if (each.forward < each.backward) p.overlaps.add(each);
    const auto some = built(p, dual_pipe_v);
    CHECK(some.pairs > 30);
    CHECK(some.pairs < 89);

    auto uneven = pair_problem(4, 8, 4, true);
    std::vector<cost_factors> factors(8);
    factors[3] = {1.5, 1.5, 1.5, 1.5, 1.5};
    uneven.microbatches.set_factors(factors);
    CHECK(built(uneven, dual_pipe_v).pairs > 0);
    uneven.microbatches.set_sequences(std::vector<unsigned>{0, 0, 1, 1, 2, 2, 3, 3});
    CHECK(built(uneven, dual_pipe_v).pairs > 0); // of its neighbours, as for every other method
}

TEST_CASE("neighbours in other schedules are merged where that makes the step shorter") {
    const auto p = pair_problem(4, 16, 5, false);
    const auto merged = built(p, interleaved);
    CHECK(merged.objective.value() == 91.5);
    CHECK(merged.pairs > 0);
    auto dear = pair_problem(4, 16, 6, false); // takes as long as the parts in succession
    CHECK(built(dear, interleaved).pairs == 0);
    auto full = p;
    for (auto& limit : full.memory_limit)
        limit = memory_size{11.0}; // what interleaved 1F1B holds
    for (const auto build : {interleaved}) {
        const auto within = built(full, build);
        for (const rank r : full.graph.all_ranks())
            CHECK(within.peak_memory[r] <= full.memory_limit[r]);
    }
    CHECK(built(p, gpipe).objective <= duration{105.0});
}
