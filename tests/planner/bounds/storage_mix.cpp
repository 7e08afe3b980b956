#include "optpipe/planner/bounds/storage_mix.hpp"

#include "optpipe/core/stop_check.hpp"
#include "optpipe/planner/bounds/lower_bound.hpp"
#include "optpipe/schedule/bounds/structural_bounds.hpp"
#include "optpipe/schedule/builders/adaptive.hpp"
#include "optpipe/schedule/time/measure.hpp"
#include "oracle/exhaustive.hpp"
#include "oracle/four_options.hpp"
#include "oracle/random_cases.hpp"
#include "oracle/random_problem.hpp"
#include "oracle/random_schedule.hpp"
#include "oracle/reference_checker.hpp"
#include "oracle/spelled.hpp"

#include <doctest/doctest.h>

#include <cstdint>

namespace {

using oracle::four_options;
using namespace optpipe::literals;

optpipe::duration mix_bound(const optpipe::problem& p, optpipe::stop_check stop = {}) {
    return storage_mix_bound(p, bounds_of(p).best(), stop);
}

struct storage_tally {
    int proven = 0;
    int tight = 0;
    int stronger = 0;

    void compare(const optpipe::problem& p, double optimum) {
        ++proven;
        const auto relaxed = bounds_of(p).best();
        const auto bound = mix_bound(p);
        CHECK(relaxed.value() <= optimum * (1.0 + 1e-9));
        CHECK(bound.value() <= optimum * (1.0 + 1e-9));
        CHECK(bound >= relaxed);
        CHECK(propagation_bound(p, relaxed).value() <= optimum * (1.0 + 1e-9));
        tight += bound.value() >= optimum * (1.0 - 1e-6) ? 1 : 0;
        stronger += bound.value() > relaxed.value() * (1.0 + 1e-6) ? 1 : 0;
    }
};

storage_tally compare_with_all_schedules(std::uint64_t seed, std::uint64_t count,
                                         const oracle::problem_ranges& ranges) {
    storage_tally result;
    for (std::uint64_t i = 0; i < oracle::random_cases(count); ++i) {
        CAPTURE(seed);
        CAPTURE(i);
        oracle::random_numbers random{seed * 1'000'003 + i};
        const auto given = oracle::make_random_problem(random, ranges);
        if (is_described_by_costs(given.problem) != (ranges.storage_percent == 0)) continue;
        const auto best = oracle::exhaustive_optimum(given.problem, given.grid, 4'000);
        if (!best.proven) continue;
        REQUIRE(best.objective.has_value());
        INFO(oracle::spell(best.schedule));
        CHECK(oracle::judge(given.problem, best.schedule).text() == "");
        result.compare(given.problem, *best.objective);
    }
    return result;
}

/// Little memory, and transfers of all ranks over one link.
optpipe::problem in_need_of_links(oracle::random_numbers& random, std::size_t ranks, std::size_t microbatches) {
    const optpipe::graph<optpipe::dynamic, optpipe::dynamic> g{ranks, microbatches};
    const auto time = [&](std::size_t low, std::size_t high) {
        return optpipe::duration{static_cast<double>(random.between(low, high))};
    };
    const auto copy = time(1, 8);
    const optpipe::stage_costs each{time(1, 4), time(1, 4), time(1, 3),
                                    2_gb,       1_gb,       optpipe::transfer_times{copy, copy}};
    auto p = make_problem(to_any_graph(g), optpipe::uniform_memory{each},
                          optpipe::memory_size{static_cast<double>(random.between(3, 6))});
    p.p2p = optpipe::hop_times<>{time(0, 2)};
    if (random.chance(30))
        for (auto& limit : p.host_memory_limit)
            limit = optpipe::memory_size{2.0 * static_cast<double>(random.between(1, 3))};
    p.transfer.engines = random.chance(50) ? 2 : 1;
    p.transfer.duplex = random.chance(50) ? optpipe::duplex_kind::half : optpipe::duplex_kind::full;
    for (std::uint32_t r = 1; r < ranks; ++r)
        p.transfer.share_link(optpipe::rank{r - 1}, optpipe::rank{r});
    return p;
}

/// All stashes are offloaded, or also recomputed, and hosts have room for `host` of them.
optpipe::problem without_keeping(std::size_t ranks, std::size_t microbatches, std::size_t host, bool recomputes) {
    const optpipe::graph<optpipe::dynamic, optpipe::dynamic> g{ranks, microbatches};
    auto p = make_problem(to_any_graph(g), optpipe::uniform_memory{{4_ms, 2_ms, 2_ms, 1_gb, 0.5_gb, {}}});
    p.split_backward = false;
    for (auto& list : p.storage) {
        list.assign({{"offload", 1_gb, {}, {}, 1_gb, optpipe::transfer_times{1_ms, 1_ms}}});
        if (recomputes) list.push_back({"full", 0_gb, 8_ms, {}, {}, {}});
    }
    for (auto& limit : p.host_memory_limit)
        limit = optpipe::memory_size{static_cast<double>(host)};
    return p;
}

} // namespace

TEST_CASE("no schedule with storage options is shorter than a bound") {
    const auto t = compare_with_all_schedules(81, 250, {.cells = 4, .offloading_percent = 60, .storage_percent = 100});
    CHECK(t.proven >= static_cast<int>(oracle::random_cases(200)));
    CHECK(t.tight >= static_cast<int>(oracle::random_cases(100)));
    CHECK(t.stronger >= static_cast<int>(oracle::random_cases(40)));
}

TEST_CASE("nor with more microbatches on two ranks, v placements among them") {
    const auto t = compare_with_all_schedules(
        82, 120,
        {.ranks = 2, .stages = 4, .microbatches = 3, .cells = 6, .offloading_percent = 60, .storage_percent = 100});
    CHECK(t.proven >= static_cast<int>(oracle::random_cases(60)));
    CHECK(t.tight >= static_cast<int>(oracle::random_cases(40)));
    CHECK(t.stronger >= static_cast<int>(oracle::random_cases(15)));
}

TEST_CASE("nor if stashes are only kept or offloaded") {
    const auto t = compare_with_all_schedules(84, 600, {.cells = 6, .offloading_percent = 80});
    CHECK(t.proven >= static_cast<int>(oracle::random_cases(360)));
    CHECK(t.stronger >= static_cast<int>(oracle::random_cases(6)));
}

TEST_CASE("nor on links that are shared, where transfers are slower than computation") {
    constexpr std::uint64_t seed = 85;
    storage_tally t;
    int together = 0;
    for (std::uint64_t i = 0; i < oracle::random_cases(600); ++i) {
        CAPTURE(seed);
        CAPTURE(i);
        oracle::random_numbers random{seed * 1'000'003 + i};
        const auto p = in_need_of_links(random, random.between(2, 3), random.between(2, 3));
        const auto best = oracle::exhaustive_optimum(p, 1.0, 4'000);
        if (!best.proven) continue;
        t.compare(p, *best.objective);
    }
    for (std::uint64_t i = 0; i < oracle::random_cases(40); ++i) {
        CAPTURE(seed);
        CAPTURE(i);
        oracle::random_numbers random{seed * 1'000'003 + i};
        const auto p = in_need_of_links(random, random.between(4, 5), random.between(6, 12));
        auto apart = p;
        apart.transfer.link = optpipe::transfer_rules{p.graph.ranks()}.link;
        const auto known = bounds_of(apart).best();
        CHECK(storage_mix_bound(p, known) >= storage_mix_bound(apart, known) * (1.0 - 1e-6));
        together += storage_mix_bound(p, known) > storage_mix_bound(apart, known) * (1.0 + 1e-6) ? 1 : 0;
        const auto s = *time_order(p, *optpipe::adaptive_builder<>{{}, 20'000}(p));
        CHECK(mix_bound(p).value() <= objective_of(p, s).value() * (1.0 + 1e-9));
    }
    CHECK(t.proven >= static_cast<int>(oracle::random_cases(240)));
    CHECK(together >= static_cast<int>(oracle::random_cases(8)));
}

TEST_CASE("nor where nothing is kept, and hosts have little memory") {
    storage_tally t;
    for (std::uint64_t i = 0; i < oracle::random_cases(200); ++i) {
        CAPTURE(i);
        oracle::random_numbers random{86 * 1'000'003 + i};
        auto p = without_keeping(random.between(2, 3), random.between(2, 3), random.between(1, 2), random.chance(50));
        for (auto& limit : p.memory_limit)
            limit = optpipe::memory_size{static_cast<double>(random.between(1, 3))};
        const auto best = oracle::exhaustive_optimum(p, 1.0, 4'000);
        if (best.proven && best.objective) t.compare(p, *best.objective);
    }
    CHECK(t.proven >= static_cast<int>(oracle::random_cases(60)));
    // Stashes also wait on the device, where the host's limit doesn't count.
    for (const auto device : {4_gb, optpipe::memory_size::unlimited()}) {
        auto p = without_keeping(4, 8, 1, false);
        for (auto& limit : p.memory_limit)
            limit = device;
        const auto s = *time_order(p, *optpipe::adaptive_builder<>{{}, 20'000}(p));
        CHECK(mix_bound(p).value() <= objective_of(p, s).value() * (1.0 + 1e-9));
    }
}

TEST_CASE("nor is a schedule that is drawn at random") {
    constexpr std::uint64_t seed = 83;
    for (std::uint64_t i = 0; i < oracle::random_cases(100); ++i) {
        CAPTURE(seed);
        CAPTURE(i);
        oracle::random_numbers random{seed * 1'000'003 + i};
        const auto given = oracle::make_random_problem(
            random, {.ranks = 4, .stages = 4, .microbatches = 8, .cells = 24, .storage_percent = 100});
        const auto bound = mix_bound(given.problem);
        for (int k = 0; k < 10; ++k) {
            const auto drawn = oracle::judge(given.problem, oracle::random_schedule(random, given));
            REQUIRE(drawn.valid());
            CHECK(bound.value() <= drawn.objective * (1.0 + 1e-9));
        }
    }
}

TEST_CASE("the storage mix sees what recomputation costs") {
    const auto p = four_options(2, 4, 1.2_gb);
    CHECK(bounds_of(p).best().value() == doctest::Approx(118.5));
    // 126.1 with any shares, 128.5 with integral numbers of microbatches.
    CHECK(mix_bound(p).value() == doctest::Approx(128.5).epsilon(1e-6));
    CHECK(lower_bound(p).value() == doctest::Approx(128.5).epsilon(1e-6));
    CHECK(strong_bounds_of(p).best() < 127_ms);
    // With memory for everything nothing is lost; without the cheap options more is.
    CHECK(mix_bound(four_options(2, 4, 4_gb)) == bounds_of(p).best());
    auto less = p;
    for (auto& list : less.storage)
        list.erase(list.begin() + 1, list.begin() + 3);
    CHECK(mix_bound(less).value() > mix_bound(p).value() + 1.0);
    // If stopped at once, it is the bound of the relaxations.
    const optpipe::stop_when at_once{[] { return true; }};
    CHECK(mix_bound(p, at_once) <= bounds_of(p).best());
    CHECK(mix_bound(p) == mix_bound(p));
}
