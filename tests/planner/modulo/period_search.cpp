#include "optpipe/planner/modulo/period_search.hpp"

#include "optpipe/planner/modulo/completion.hpp"
#include "optpipe/schedule/time/evaluate.hpp"
#include "optpipe/schedule/time/validate.hpp"
#include "optpipe/testing/random_problem.hpp"
#include "oracle/random_cases.hpp"
#include "oracle/reference_checker.hpp"
#include "oracle/v_problem.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

using namespace optpipe;

namespace {

problem uniform_problem(std::size_t ranks, std::size_t microbatches, const stage_costs& each, double stashes) {
    problem p{to_any_graph(graph<dynamic, dynamic>{ranks, microbatches}), per_stage<stage_costs>(ranks, each)};
    for (auto& limit : p.memory_limit)
        limit = stashes * each.activation;
    return p;
}
stage_costs costs(double forward, double input, double weight, double weight_stash) {
    return {duration{forward}, duration{input}, duration{weight}, memory_size{1.0}, memory_size{weight_stash}, {}};
}

/// All patterns that a search of this effort finds, and the shortest period.
struct found_patterns {
    std::vector<periodic_pattern> all{};
    duration best = duration::unlimited();
};
found_patterns search(const problem& p, std::uint64_t seed, std::size_t effort) {
    found_patterns found;
    detail::period_search run{p, seed, effort, [&](const periodic_pattern& one) { found.all.push_back(one); }, {}};
    run.run();
    found.best = run.best();
    return found;
}

} // namespace

TEST_CASE("a pattern that is repeated is a valid schedule in the memory it says, however it ends") {
    std::size_t with_transfers = 0;
    std::size_t recomputed = 0;
    std::size_t recomputed_ahead = 0;
    std::size_t refilled_with_options = 0;
    std::size_t patterns = 0;
    for (std::uint64_t seed = 1; seed <= 120; seed += oracle::stride(3)) {
        CAPTURE(seed);
        random_numbers random{seed};
        const testing::problem_ranges ranges{
            .ranks = 4, .stages = 6, .microbatches = 8, .cells = 24, .storage_percent = seed > 60 ? 100U : 0U};
        const auto p = testing::make_random_problem(random, ranges).problem;
        const auto found = search(p, seed, !is_described_by_costs(p) ? 20'000 : 4'000);
        for (std::size_t i = 0; i < found.all.size(); i += 1 + found.all.size() / 3) {
            const auto& pattern = found.all[i];
            ++patterns;
            CHECK(pattern.period >= p.busiest_work() - tolerance{}.at(pattern.period));
            const auto repeated = repeat(p, pattern);
            const auto verdict = oracle::judge(p, repeated);
            CHECK_MESSAGE(verdict.valid(), verdict.text());
            const auto device = memory_of_repetition(p, pattern);
            const auto host = memory_of_repetition(p, pattern, memory_kind::host);
            for (const rank r : p.graph.all_ranks()) {
                CHECK(verdict.peak_memory[r.position()] <= doctest::Approx(device[r].value()));
                CHECK(verdict.peak_host_memory[r.position()] <= doctest::Approx(host[r].value()));
                CHECK(device[r] <= p.memory_limit[r] + tolerance{}.at(p.memory_scale()));
            }
            for (const double ahead : {0.0, 0.5, 1.0})
                for (const bool refill : {false, true}) {
                    if (refill && !detail::can_refill(p, pattern)) continue;
                    const auto completed = detail::complete_pattern(p, pattern, {ahead, refill});
                    if (!completed) continue;
                    const auto judged = oracle::judge(p, *completed);
                    CHECK_MESSAGE(judged.valid(), judged.text());
                    refilled_with_options += refill && !is_described_by_costs(p) ? 1 : 0;
                    if (ahead == 0.0 && !refill) CHECK(judged.objective <= doctest::Approx(verdict.objective));
                }
            for (const stage s : p.graph.all_stages())
                for (const auto& at : pattern.stages[s]) {
                    const auto stored = p.storage_of(s, at.storage);
                    with_transfers += stored.offloads() ? 1 : 0;
                    recomputed += stored.extra_work() > duration{} ? 1 : 0;
                    recomputed_ahead += stored.recomputes() ? 1 : 0;
                }
        }
    }
    CHECK(patterns >= oracle::random_cases(120));
    CHECK(with_transfers >= oracle::random_cases(16));
    CHECK(recomputed >= oracle::random_cases(10));
    CHECK(recomputed_ahead >= oracle::random_cases(8));
    CHECK(refilled_with_options >= oracle::random_cases(8));
}

TEST_CASE("without a limit of memory the busiest rank is never idle") {
    for (const std::size_t ranks : {1U, 2U, 3U, 5U, 8U}) {
        CAPTURE(ranks);
        for (const auto& each : {costs(1, 1, 1, 0.5), costs(18.5, 18.1, 9.3, 0.4), costs(1, 2, 0.5, 1)}) {
            auto p = uniform_problem(ranks, 16, each, 1e9);
            p.costs[stage{ranks / 2}].forward += duration{0.5};
            CHECK(search(p, 1, 20'000).best.value() == doctest::Approx((each.work() + duration{0.5}).value()));
        }
    }
}

// 1F1B: a stash of rank 0 lives for R (F + B), so with L stashes a microbatch can begin at most every R (F + B) / L.
// With one stage per rank and full backwards, the time from F to its gradient, modulo the period, is between F and
// period − B. Each distance is at least the next one plus F + B, and the least possible one is best for all previous
// ranks.
TEST_CASE("below the memory of 1F1B the period of full backwards grows as lifespan over limit") {
    const auto is_feasible = [](double period, std::size_t ranks, std::size_t stashes) {
        double distance = 1.0;
        for (std::size_t i = 0; i < ranks; ++i) {
            const auto phase = std::fmod(distance, period);
            if (phase < 1.0) distance += 1.0 - phase;
            if (phase > period - 2.0 + 1e-9) distance += period - phase + 1.0;
            if (distance + 2.0 > static_cast<double>(stashes) * period + 1e-9) return false;
            distance += 3.0;
        }
        return true;
    };
    for (const std::size_t ranks : {2U, 4U, 6U})
        for (std::size_t stashes = 1; stashes <= ranks; ++stashes) {
            CAPTURE(ranks);
            CAPTURE(stashes);
            auto p = uniform_problem(ranks, 12, costs(1, 1, 1, 1), static_cast<double>(stashes));
            p.split_backward = false;
            const double published = 3.0 * static_cast<double>(ranks) / static_cast<double>(stashes);
            double least = published;
            while (!is_feasible(least, ranks, stashes))
                least += 0.001;
            const auto best = search(p, 1, 60'000).best.value();
            CHECK(best >= doctest::Approx(published));
            CHECK(best <= 1.01 * least);
            if (ranks % stashes == 0) CHECK(least == doctest::Approx(published));
        }
}

// V-Min holds about a third, V-Half half of the memory of 1F1B (Controllable Memory, section 4). With unit passes both
// keep every rank busy.
TEST_CASE("in v placement unit passes keep the ranks busy with the memory of V-Min and of V-Half") {
    const auto period = [](std::size_t ranks, std::size_t half_ranks) {
        return search(oracle::unit_v_problem(ranks, 24, static_cast<double>(half_ranks)), 1, 400'000).best.value();
    };
    for (const std::size_t ranks : {3U, 5U})
        CHECK(period(ranks, 2 * ((ranks + 4) / 3)) == doctest::Approx(6.0));
    for (const std::size_t ranks : {3U, 4U, 5U})
        CHECK(period(ranks, 2 * ((ranks + 2) / 2)) == doctest::Approx(6.0));
}

TEST_CASE("two microbatches in a period go where one can't: unit passes, three quarters of 1F1B's memory") {
    const auto p = uniform_problem(8, 16, costs(1, 1, 1, 0.5), 6.0);
    const auto found = search(p, 1, 60'000);
    CHECK(found.best.value() == doctest::Approx(3.0));
    for (const auto& pattern : found.all)
        if (pattern.periodicity == 1) CHECK(pattern.period.value() > 3.2);
}

TEST_CASE("forwards go ahead as far as memory allows, without a collision") {
    auto p = uniform_problem(4, 16, costs(1, 1, 1, 0.5), 8.0);
    const auto found = search(p, 1, 2'000);
    REQUIRE_FALSE(found.all.empty());
    const auto& pattern = found.all.front();
    const auto ahead = detail::with_forwards_ahead(p, pattern, 1.0);
    CHECK(ahead.stages[stage{0}][0].forward <= pattern.stages[stage{0}][0].forward - pattern.length());
    CHECK(ahead.stages[stage{3}][0].forward == pattern.stages[stage{3}][0].forward);
    CHECK(is_valid(p, repeat(p, ahead)));
    for (const rank r : p.graph.all_ranks())
        CHECK(memory_of_repetition(p, ahead)[r] <= p.memory_limit[r] + tolerance{}.at(p.memory_scale()));
    for (const rank r : p.graph.all_ranks())
        p.memory_limit[r] = memory_of_repetition(p, pattern)[r];
    const auto without_room = detail::with_forwards_ahead(p, pattern, 1.0);
    CHECK(repeat(p, without_room).operations == repeat(p, pattern).operations);
}

TEST_CASE("a search may be stopped at any moment") {
    random_numbers random{11};
    for (std::size_t asked = 0; asked < 200; asked += 1 + asked / 8) {
        const auto p =
            testing::make_random_problem(random, {.ranks = 4, .stages = 6, .microbatches = 8, .cells = 24}).problem;
        std::size_t count = 0;
        const stop_when enough{[&] { return ++count > asked; }};
        detail::period_search run{p, 1, 10'000,
                                  [&](const periodic_pattern& one) { CHECK(is_valid(p, repeat(p, one))); }, enough};
        run.run();
    }
}

TEST_CASE("the same seed finds the same patterns") {
    random_numbers random{7};
    const auto p =
        testing::make_random_problem(random, {.ranks = 4, .stages = 6, .microbatches = 8, .cells = 40}).problem;
    const auto one = search(p, 5, 10'000);
    const auto two = search(p, 5, 10'000);
    REQUIRE(one.all.size() == two.all.size());
    for (std::size_t i = 0; i < one.all.size(); ++i)
        CHECK(repeat(p, one.all[i]).operations == repeat(p, two.all[i]).operations);
}
