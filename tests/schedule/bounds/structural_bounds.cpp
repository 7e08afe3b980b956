#include "optpipe/schedule/bounds/structural_bounds.hpp"

#include "optpipe/pipeline/make_problem.hpp"
#include "optpipe/schedule/builders/adaptive.hpp"
#include "optpipe/schedule/time/evaluate.hpp"
#include "oracle/exhaustive.hpp"
#include "oracle/random_cases.hpp"
#include "oracle/random_problem.hpp"
#include "oracle/random_schedule.hpp"
#include "oracle/reference_checker.hpp"
#include "oracle/spelled.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <string>
#include <vector>

namespace {

using optpipe::duration;
using optpipe::memory_size;
using optpipe::objective_kind;
using optpipe::rank;
using optpipe::stage;
using optpipe::structural_bound_names;
using optpipe::structural_bounds;
using optpipe::transfer_times;
using namespace optpipe::literals;

/// The number of problems in which each bound equals the optimum.
struct tally {
    std::array<std::uint64_t, structural_bound_names.size()> tight{};
    std::uint64_t proven = 0;

    std::uint64_t tight_of(duration structural_bounds::*bound) const {
        std::size_t k = 0;
        while (structural_bound_names.at(k).value != bound)
            ++k;
        return tight[k];
    }
    void compare(const optpipe::problem& p, double optimum) {
        const auto bounds = strong_bounds_of(p);
        ++proven;
        for (std::size_t k = 0; k < structural_bound_names.size(); ++k) {
            const auto bound = (bounds.*structural_bound_names[k].value).value();
            CAPTURE(structural_bound_names[k].name);
            CHECK(bound >= 0.0);
            CHECK(bound <= optimum * (1.0 + 1e-9));
            CHECK(bound <= bounds.best().value());
            tight[k] += bound >= optimum * (1.0 - 1e-9) ? 1 : 0;
        }
    }
};

tally compare_with_all_schedules(std::uint64_t seed, std::uint64_t count, const oracle::problem_ranges& ranges) {
    tally result;
    for (std::uint64_t i = 0; i < oracle::random_cases(count); ++i) {
        CAPTURE(seed);
        CAPTURE(i);
        oracle::random_numbers random{seed * 1'000'003 + i};
        const auto given = oracle::make_random_problem(random, ranges);
        const auto best = oracle::exhaustive_optimum(given.problem, given.grid, 20'000);
        if (!best.proven) continue;
        REQUIRE(best.objective.has_value());
        INFO(oracle::spell(best.schedule));
        CHECK(oracle::judge(given.problem, best.schedule).text() == "");
        result.compare(given.problem, *best.objective);
    }
    return result;
}

optpipe::problem unit(std::size_t ranks, std::size_t microbatches) {
    const optpipe::graph<optpipe::dynamic, optpipe::dynamic> g{ranks, microbatches};
    return make_problem(to_any_graph(g), optpipe::unit_memory{});
}

/// Little memory and a long way to the last rank: without transfers the ranks can only wait.
optpipe::problem in_need_of_transfers(oracle::random_numbers& random, std::size_t ranks, std::size_t microbatches) {
    const auto steps = [&](std::size_t low, std::size_t high) {
        return duration{static_cast<double>(random.between(low, high))};
    };
    auto p = unit(ranks, microbatches);
    p.change_stages([&](auto& c) {
        c = {steps(1, 3), steps(1, 3), steps(1, 3), 1_gb, 0.25_gb, transfer_times{steps(1, 4), steps(1, 4)}};
    });
    p.p2p = optpipe::hop_times<>{steps(0, 6)};
    p.split_backward = random.chance(70);
    for (auto& limit : p.memory_limit)
        limit = memory_size{1.0 + 0.25 * static_cast<double>(random.between(0, 5))};
    p.transfer.engines = random.chance(50) ? 2 : 1;
    p.transfer.duplex = random.chance(50) ? optpipe::duplex_kind::half : optpipe::duplex_kind::full;
    for (std::size_t r = 1; r < ranks; ++r)
        if (random.chance(50)) p.transfer.share_link(rank{r - 1}, rank{r});
    if (random.chance(50)) p.objective = objective_kind::span;
    return p;
}

} // namespace

TEST_CASE("no schedule of a small problem is shorter than any bound") {
    const auto t = compare_with_all_schedules(61, 900, {.cells = 6, .offloading_percent = 0});
    CHECK(t.proven > oracle::random_cases(850));
    CHECK(t.tight_of(&structural_bounds::device_load) > oracle::random_cases(300));
    CHECK(t.tight_of(&structural_bounds::warm_up) > oracle::random_cases(10));
    CHECK(t.tight_of(&structural_bounds::memory_area) > oracle::random_cases(10));
    CHECK(t.tight_of(&structural_bounds::stash_rounds) > oracle::random_cases(50));
}

TEST_CASE("nor with offloading") {
    const auto t = compare_with_all_schedules(62, 900, {.cells = 6, .offloading_percent = 100});
    CHECK(t.proven > oracle::random_cases(850));
    CHECK(t.tight_of(&structural_bounds::device_load) > oracle::random_cases(300));
    CHECK(t.tight_of(&structural_bounds::memory_area) > oracle::random_cases(10));
}

TEST_CASE("nor with more microbatches on fewer stages") {
    const auto t = compare_with_all_schedules(63, 500, {.ranks = 2, .stages = 2, .microbatches = 8, .cells = 8});
    CHECK(t.proven > oracle::random_cases(350));
    CHECK(t.tight_of(&structural_bounds::warm_up) > oracle::random_cases(5));
    CHECK(t.tight_of(&structural_bounds::memory_area) > oracle::random_cases(5));
    CHECK(t.tight_of(&structural_bounds::stash_rounds) > oracle::random_cases(50));
}

TEST_CASE("where a stash alone doesn't fit there is no schedule, and no number stands for that") {
    const optpipe::stage_costs unit{1_ms, 1_ms, 1_ms, 2_gb, 1_gb, transfer_times{1_ms, 1_ms}};
    const auto p = make_problem(optpipe::graph<2, 4>{}, optpipe::uniform_memory{unit}, 1_gb);
    CHECK(bounds_of(p).memory_area.is_unlimited());
    CHECK(strong_bounds_of(p).best().is_unlimited());
}

TEST_CASE("nor where transfers are what matters") {
    constexpr std::uint64_t seed = 66;
    tally t;
    for (std::uint64_t i = 0; i < oracle::random_cases(200); ++i) {
        CAPTURE(seed);
        CAPTURE(i);
        oracle::random_numbers random{seed * 1'000'003 + i};
        const auto p = in_need_of_transfers(random, 2, 2);
        const auto best = oracle::exhaustive_optimum(p, 1.0, 20'000);
        if (best.proven) t.compare(p, *best.objective);
    }
    CHECK(t.proven > oracle::random_cases(100));
    CHECK(t.tight_of(&structural_bounds::memory_area) > oracle::random_cases(10));

    std::uint64_t linked = 0;
    std::uint64_t slower = 0;
    const auto cases = 200 / oracle::stride(2);
    for (std::uint64_t i = 0; i < cases; ++i) {
        CAPTURE(seed);
        CAPTURE(i);
        oracle::random_numbers random{seed * 1'000'003 + i};
        const auto p = in_need_of_transfers(random, random.between(2, 3), random.between(6, 16));
        const auto s = *time_order(p, *optpipe::adaptive_builder<>{{}, 20'000}(p));
        t.compare(p, objective_of(p, s).value());
        auto full = p;
        full.transfer.duplex = optpipe::duplex_kind::full;
        auto half = p;
        half.transfer.duplex = optpipe::duplex_kind::half;
        auto together = half;
        for (std::size_t r = 1; r < p.graph.ranks(); ++r)
            together.transfer.share_link(rank{r - 1}, rank{r});
        auto apart = half;
        apart.transfer.link = optpipe::transfer_rules{p.graph.ranks()}.link;
        linked += bounds_of(together).memory_area > bounds_of(apart).memory_area * (1.0 + 1e-6) ? 1 : 0;
        CHECK(bounds_of(together).memory_area >= bounds_of(apart).memory_area * (1.0 - 1e-6));
        const double ratio = bounds_of(half).memory_area / bounds_of(full).memory_area;
        CHECK(ratio >= 1.0 - 1e-6);
        slower += ratio > 1.0 + 1e-6 ? 1 : 0;
    }
    CHECK(linked > cases / 60);
    CHECK(slower > cases / 60);
}

TEST_CASE("nor any that is drawn of a larger one") {
    constexpr std::uint64_t seed = 64;
    for (std::uint64_t i = 0; i < oracle::random_cases(600); ++i) {
        CAPTURE(seed);
        CAPTURE(i);
        oracle::random_numbers random{seed * 1'000'003 + i};
        const auto given =
            oracle::make_random_problem(random, {.ranks = 6, .stages = 12, .microbatches = 12, .cells = 72});
        const auto& p = given.problem;
        auto best = duration::unlimited();
        const auto offer = [&](const optpipe::order& order) {
            auto s = *simulate(p, order);
            if (p.objective == objective_kind::span) postpone_warm_up(p, s);
            best = std::min(best, objective_of(p, s));
        };
        offer(*optpipe::adaptive_builder<>{{}, 1}(p));
        for (int k = 0; k < 5; ++k)
            offer(oracle::random_order(random, p));
        const auto bounds = strong_bounds_of(p);
        for (const auto& bound : structural_bound_names) {
            CAPTURE(bound.name);
            CHECK((bounds.*bound.value).value() <= best.value() * (1.0 + 1e-9));
        }
    }
}

TEST_CASE("v placements with unit passes") {
    // 6m + 6p − 3k − 1 if fewer than 2m stashes fit.
    for (const auto& [stashes, expected] : {std::array{2.0, 17.0}, std::array{3.0, 14.0}}) {
        const optpipe::graph<2, 2, optpipe::placement::v> g{};
        const optpipe::stage_costs each{1_ms, 1_ms, 1_ms, 1_gb, 1_gb, {}};
        auto p = make_problem(to_any_graph(g), optpipe::uniform_memory{each}, memory_size{stashes});
        const auto bounds = bounds_of(p);
        CHECK(bounds.v_placement.value() == doctest::Approx(expected));
        const auto best = oracle::exhaustive_optimum(p, 1.0, 2'000'000);
        REQUIRE(best.proven);
        CHECK(bounds.best().value() <= *best.objective + 1e-9);
        // For problems outside its scope it gives no bound.
        auto other = p;
        other.memory_limit = optpipe::per_rank<memory_size>(2, 4_gb);
        CHECK(bounds_of(other).v_placement == 0_ms);
        other = p;
        other.costs[stage{1}].forward = 2_ms;
        CHECK(bounds_of(other).v_placement == 0_ms);
        other = p;
        other.p2p = optpipe::hop_times<>{1_ms};
        CHECK(bounds_of(other).v_placement == 0_ms);
        other = p;
        other.change_stage(stage{0}, [&](auto& c) { c.transfer = transfer_times{1_ms, 1_ms}; });
        CHECK(bounds_of(other).v_placement == 0_ms);
        other = p;
        other.split_backward = false;
        CHECK(bounds_of(other).v_placement == 0_ms);
    }
}

TEST_CASE("bounds that are known") {
    // Rank 3 starts at 3, and then has 8 microbatches of 3.
    auto p = unit(4, 8);
    CHECK(bounds_of(p).device_load.value() == doctest::Approx(27.0));
    CHECK(bounds_of(p).best().value() == doctest::Approx(27.0));
    CHECK(bounds_of(p).memory_area == 0_ms);
    CHECK(bounds_of(p).warm_up == 0_ms);
    // Without splitting, three full backwards follow rank 3, and 1F1B can't be improved.
    p.split_backward = false;
    CHECK(bounds_of(p).best().value() == doctest::Approx(33.0));
    // One stash per rank: rank 0 is idle from the end of its forward until the gradient comes back, each time.
    auto q = unit(4, 8);
    for (auto& limit : q.memory_limit)
        limit = 1_gb;
    for (auto& c : q.costs)
        c.weight_stash = 1_gb;
    CHECK(bounds_of(q).memory_area.value() >= 8.0 * 9.0 - 1e-6);
    // For span, the time before a rank's first start doesn't count.
    p = unit(4, 8);
    p.objective = objective_kind::span;
    CHECK(bounds_of(p).best().value() >= 24.0 - 1e-9);
    CHECK(bounds_of(p).best().value() <= 33.0 + 1e-9);
}

TEST_CASE("as many microbatches as fit, round after round") {
    // Two on rank 0: four forwards and four gradients, twice. In between a weight gradient, which may leave no room; at
    // the end the second microbatch of the last round and its weight gradient.
    auto p = unit(4, 4);
    for (auto& limit : p.memory_limit)
        limit = 2_gb;
    for (auto& c : p.costs)
        c.weight_stash = 0.5_gb;
    CHECK(bounds_of(p).stash_rounds.value() == doctest::Approx(2 * 8 + 1 + 2 + 1));
    CHECK(bounds_of(p).best() == bounds_of(p).stash_rounds);
    auto roomy = p;
    for (auto& limit : roomy.memory_limit)
        limit = 2.5_gb;
    CHECK(bounds_of(roomy).stash_rounds.value() == doctest::Approx(2 * 8 + 2 + 1));
    auto whole = p;
    whole.split_backward = false;
    CHECK(bounds_of(whole).stash_rounds.value() == doctest::Approx(2 * 12 + 3));
    // An offloaded stash makes room for another.
    p.change_stage(stage{0}, [&](auto& c) { c.transfer = transfer_times{1_ms, 1_ms}; });
    CHECK(bounds_of(p).stash_rounds < bounds_of(roomy).stash_rounds);
}

TEST_CASE("memory × lifetime with offloading") {
    const optpipe::stage_costs each{18.5_ms, 18.1_ms, 9.3_ms, 1_gb, 0.5_gb, transfer_times{11.475_ms, 11.475_ms}};
    auto p = make_problem(to_any_graph(optpipe::graph<3, 6>{}), optpipe::uniform_memory{each}, 1.5_gb);
    p.p2p = optpipe::hop_times<>{0.6_ms};
    const auto bounds = bounds_of(p);
    CHECK(bounds.best() == bounds.memory_area);
    CHECK(bounds.best().value() == doctest::Approx(404.4).epsilon(0.001));
    p.change_stages([&](auto& c) { c.transfer = {}; });
    CHECK(bounds_of(p).memory_area > bounds.memory_area);
}

TEST_CASE("memory × lifetime where what waits for a weight gradient leaves no room for a stash") {
    // One stash or one waiting weight gradient, not both: the microbatches alternate on rank 0, from the forward to the
    // end of the weight gradient, less the time on the host.
    const auto alternating = [](double transfer) {
        const duration each_way{transfer};
        const optpipe::stage_costs each{18.5_ms, 18.1_ms, 9.3_ms, 1_gb, 0.5_gb, transfer_times{each_way, each_way}};
        auto p = make_problem(to_any_graph(optpipe::graph<2, 4>{}), optpipe::uniform_memory{each}, 1_gb);
        p.p2p = optpipe::hop_times<>{0.6_ms};
        return p;
    };
    const auto with = strong_bounds_of(alternating(11.475));
    CHECK(with.best() == with.memory_area);
    CHECK(with.best().value() == doctest::Approx(4 * (18.5 + 2 * 11.475 + 18.1 + 9.3)));
    const auto without = strong_bounds_of(alternating(22.95));
    CHECK(without.best() == without.memory_area);
    CHECK(without.best().value() == doctest::Approx(4 * (2 * 36.6 + 2 * 0.6 + 9.3)));
    // Four waiting ones would fit, but the fourth's stash was held together with the other three.
    const auto three = optpipe::detail::capacities(10.8_gb, 8.6_gb, 35_gb, 0_gb);
    REQUIRE(three.size() == 1);
    CHECK(three[0].level == doctest::Approx(3 * 10.8));
    CHECK(three[0].per_weight == doctest::Approx(10.8));
    // Four waiting ones, one stash and three, or three stashes: a stash costs as much as a waiting one, then half as
    // much again.
    const auto mixed = optpipe::detail::capacities(10_gb, 8_gb, 35_gb, 0_gb);
    REQUIRE(mixed.size() == 2);
    CHECK(mixed[0].level == doctest::Approx(40.0));
    CHECK(mixed[1].level == doctest::Approx(30.0));
    CHECK(mixed[1].per_weight == doctest::Approx(20.0 / 3.0));
}

TEST_CASE("a bound falls with every limit that is lifted") {
    constexpr std::uint64_t seed = 65;
    for (std::uint64_t i = 0; i < oracle::random_cases(300); ++i) {
        CAPTURE(seed);
        CAPTURE(i);
        oracle::random_numbers random{seed * 1'000'003 + i};
        const auto p =
            oracle::make_random_problem(random, {.ranks = 4, .stages = 8, .microbatches = 8, .cells = 32}).problem;
        const auto before = bounds_of(p);
        auto lifted = p;
        for (auto& limit : lifted.memory_limit)
            limit += 1_gb;
        const auto after = bounds_of(lifted);
        // The published bound for v placements applies only with limited memory.
        CHECK(after.memory_area.value() <= before.memory_area.value() * (1.0 + 1e-6));
        CHECK(after.warm_up.value() <= before.warm_up.value() * (1.0 + 1e-6));
        CHECK(after.stash_rounds.value() <= before.stash_rounds.value() * (1.0 + 1e-6));
        lifted = p;
        for (auto& limit : lifted.memory_limit)
            limit = memory_size::unlimited();
        const auto free = bounds_of(lifted);
        CHECK(free.memory_area == 0_ms);
        CHECK(free.stash_rounds == 0_ms);
        CHECK(free.device_load == before.device_load);
        lifted = p;
        lifted.p2p = optpipe::hop_times<>{0_ms};
        CHECK(bounds_of(lifted).best().value() <= before.best().value() * (1.0 + 1e-6));
    }
}

TEST_CASE("the worked example of optpipe/schedule/README.md") {
    optpipe::stage_costs pass{1_ms, 1_ms, 1_ms};
    pass.activation = 1_gb;
    pass.weight_stash = 0.5_gb;
    const optpipe::graph<2, 4> g;
    struct row {
        optpipe::memory_size limit;
        double load, warm_up, area, rounds, best;
    };
    for (const auto& known :
         {row{2_gb, 13, 13, 9, 12, 13}, row{1.5_gb, 13, 14, 17, 17, 17}, row{1_gb, 13, 14, 20, 20, 20}}) {
        CAPTURE(known.limit.value());
        const auto p = to_problem(make_problem(g, optpipe::uniform_memory{pass}, known.limit));
        const auto b = bounds_of(p);
        CHECK(b.device_load.value() == doctest::Approx(known.load));
        CHECK(b.warm_up.value() == doctest::Approx(known.warm_up));
        CHECK(b.memory_area.value() == doctest::Approx(known.area));
        CHECK(b.stash_rounds.value() == doctest::Approx(known.rounds));
        CHECK(b.best().value() == doctest::Approx(known.best));
    }
    pass.transfer = transfer_times{1_ms, 1_ms};
    auto uneven = to_problem(make_problem(g, optpipe::uniform_memory{pass}, 2_gb));
    uneven.memory_limit[optpipe::rank{1}] = 1_gb;
    CHECK(bounds_of(uneven).best().value() == doctest::Approx(13.0));
    CHECK(strong_bounds_of(uneven).propagation > 13_ms);
}
