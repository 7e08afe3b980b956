#include "optpipe/schedule/bounds/storage_mix.hpp"

#include "optpipe/pipeline/make_problem.hpp"
#include "optpipe/schedule/bounds/column_program.hpp"
#include "optpipe/schedule/bounds/memory_packing.hpp"
#include "optpipe/schedule/bounds/storage_relaxation.hpp"
#include "optpipe/schedule/bounds/structural_bounds.hpp"
#include "oracle/exhaustive.hpp"
#include "oracle/random_cases.hpp"
#include "oracle/random_problem.hpp"
#include "oracle/random_schedule.hpp"
#include "oracle/reference_checker.hpp"
#include "oracle/spelled.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace {

using optpipe::duration;
using optpipe::memory_size;
using optpipe::rank;
using optpipe::stage;
using optpipe::storage_option;
using optpipe::storage_relaxation;
using optpipe::transfer_times;
using namespace optpipe::literals;

struct storage_tally {
    int proven = 0;
    int tight = 0;
    int stronger = 0;

    void compare(const optpipe::problem& p, double optimum) {
        ++proven;
        const auto relaxed = bounds_of(p).best();
        const auto bound = storage_bound(p);
        CHECK(relaxed.value() <= optimum * (1.0 + 1e-9));
        CHECK(bound.value() <= optimum * (1.0 + 1e-9));
        CHECK(bound >= relaxed);
        CHECK(propagation_bound(p, relaxed).value() <= optimum * (1.0 + 1e-9));
        tight += bound.value() >= optimum * (1.0 - 1e-6) ? 1 : 0;
        stronger += bound.value() > relaxed.value() * (1.0 + 1e-6) ? 1 : 0;
    }
};

storage_tally compare_with_all_schedules(std::uint64_t seed, std::uint64_t count, oracle::problem_ranges ranges) {
    ranges.storage_percent = 100;
    storage_tally result;
    for (std::uint64_t i = 0; i < oracle::random_cases(count); ++i) {
        CAPTURE(seed);
        CAPTURE(i);
        oracle::random_numbers random{seed * 1'000'003 + i};
        const auto given = oracle::make_random_problem(random, ranges);
        if (!given.problem.has_storage_options()) continue;
        const auto best = oracle::exhaustive_optimum(given.problem, given.grid, 4'000);
        if (!best.proven) continue;
        REQUIRE(best.objective.has_value());
        INFO(oracle::spell(best.schedule));
        CHECK(oracle::judge(given.problem, best.schedule).text() == "");
        result.compare(given.problem, *best.objective);
    }
    return result;
}

/// Keep, recompute a half ahead, recompute nearly all inside the backward, offload.
optpipe::problem four_options(std::size_t ranks, std::size_t microbatches, memory_size limit) {
    const optpipe::graph<optpipe::dynamic, optpipe::dynamic> g{ranks, microbatches};
    const optpipe::stage_costs each{10_ms, 11_ms, 6_ms, 1_gb, 0.5_gb, {}};
    auto p = make_problem(to_any_graph(g), optpipe::uniform_memory{each}, limit);
    p.p2p = optpipe::hop_times<>{0.5_ms};
    for (auto& list : p.storage) {
        list.push_back(optpipe::keep_stash(each));
        list.push_back({"ahead", 0.55_gb, 3_ms, {}, {}, {}});
        list.push_back({"full", 0.1_gb, {}, 10_ms, {}, {}});
        list.push_back({"offload", 1_gb, {}, {}, 1_gb, transfer_times{13.5_ms, 13.5_ms}});
    }
    return p;
}

} // namespace

TEST_CASE("no schedule with storage options is shorter than a bound") {
    const auto t = compare_with_all_schedules(81, 250, {.cells = 4, .offloading_percent = 60});
    CHECK(t.proven >= static_cast<int>(oracle::random_cases(200)));
    CHECK(t.tight >= static_cast<int>(oracle::random_cases(100)));
    CHECK(t.stronger >= static_cast<int>(oracle::random_cases(40)));
}

TEST_CASE("nor with more microbatches on two ranks, v placements among them") {
    const auto t = compare_with_all_schedules(
        82, 120, {.ranks = 2, .stages = 4, .microbatches = 3, .cells = 6, .offloading_percent = 60});
    CHECK(t.proven >= static_cast<int>(oracle::random_cases(60)));
    CHECK(t.tight >= static_cast<int>(oracle::random_cases(40)));
    CHECK(t.stronger >= static_cast<int>(oracle::random_cases(15)));
}

TEST_CASE("nor is a schedule that is drawn at random") {
    constexpr std::uint64_t seed = 83;
    for (std::uint64_t i = 0; i < oracle::random_cases(100); ++i) {
        CAPTURE(seed);
        CAPTURE(i);
        oracle::random_numbers random{seed * 1'000'003 + i};
        const auto given = oracle::make_random_problem(
            random, {.ranks = 4, .stages = 4, .microbatches = 8, .cells = 24, .storage_percent = 100});
        const auto bound = storage_bound(given.problem);
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
    CHECK(storage_bound(p).value() == doctest::Approx(128.5).epsilon(1e-6));
    CHECK(strong_bounds_of(p).storage_mix == storage_bound(p));
    // With memory for everything nothing is lost; without the cheap options more is.
    CHECK(storage_bound(four_options(2, 4, 4_gb)) == bounds_of(p).best());
    auto less = p;
    for (auto& list : less.storage)
        list.erase(list.begin() + 1, list.begin() + 3);
    CHECK(storage_bound(less).value() > storage_bound(p).value() + 1.0);
    // If stopped at once, it is the bound of the relaxations.
    const optpipe::stop_when at_once{[] { return true; }};
    CHECK(storage_bound(p, at_once) <= bounds_of(p).best());
    CHECK(storage_bound(p) == storage_bound(p));
}

TEST_CASE("a problem without storage options that every schedule maps to") {
    auto p = four_options(2, 4, 1.2_gb);
    p.host_memory_limit[rank{0}] = 3_gb;
    const auto rest = without_storage(p, storage_relaxation::smallest_rest);
    CHECK_FALSE(rest.has_storage_options());
    CHECK(rest.costs[stage{0}].activation == 0_gb);
    CHECK_FALSE(rest.costs[stage{0}].transfer.has_value());
    CHECK(rest.costs[stage{0}].backward_input == 11_ms);
    const auto fastest = without_storage(p, storage_relaxation::fastest_transfer);
    CHECK(fastest.costs[stage{0}].activation == 0.1_gb);
    CHECK(fastest.costs[stage{0}].transfer == transfer_times{13.5_ms, 13.5_ms});
    CHECK(fastest.host_memory_limit[rank{0}] == 3_gb);
    CHECK(offloads_anything(p));
    // Two options inside the backward: the lesser time is certain.
    for (auto& list : p.storage)
        list = {{"a", 0.5_gb, {}, 4_ms, {}, {}}, {"b", 0.3_gb, {}, 5_ms, {}, {}}};
    CHECK(without_storage(p, storage_relaxation::smallest_rest).costs[stage{1}].backward_input == 15_ms);
    CHECK_FALSE(offloads_anything(p));
    // A transfer that moves less than the stash takes less host memory than in the relaxation.
    for (auto& list : p.storage)
        list = {{"half", 1_gb, {}, {}, 0.5_gb, transfer_times{1_ms, 2_ms}}};
    CHECK(without_storage(p, storage_relaxation::fastest_transfer).host_memory_limit[rank{0}].is_unlimited());
}

TEST_CASE("a linear program whose columns come one by one") {
    // min 2a + 3b, a + b = 4, a + 3b − s = 6: a = 3, b = 1.
    optpipe::detail::column_program lp{{4.0, 6.0}, 100.0};
    lp.add(2.0, {{0, 1.0}, {1, 1.0}});
    lp.add(0.0, {{1, -1.0}});
    lp.solve(100);
    CHECK(lp.objective() > 100.0);
    lp.add(3.0, {{0, 1.0}, {1, 3.0}});
    lp.solve(100);
    CHECK(lp.objective() == doctest::Approx(9.0));
    CHECK(lp.multipliers()[0] == doctest::Approx(1.5));
    CHECK(lp.multipliers()[1] == doctest::Approx(0.5));
}

TEST_CASE("stashes in cells, and the most valuable of them that fit") {
    const optpipe::detail::memory_grid exact{{1.0, 0.55, 0.1}, 1.2, 1e-6};
    CHECK(exact.cells() == 24);
    CHECK(exact.cells_of(0.55) == 11);
    CHECK(exact.cells_of(1.3) == 25);
    // Stashes that fit also fit in cells.
    const optpipe::detail::memory_grid rough{{0.7071, 0.5774}, 3.0, 1e-6};
    CHECK(3 * rough.cells_of(0.7071) + rough.cells_of(0.5774) <= rough.cells());
    CHECK(5 * rough.cells_of(0.5774) <= rough.cells());
    CHECK(4 * rough.cells_of(0.7071) + 2 * rough.cells_of(0.5774) > rough.cells());

    optpipe::detail::memory_packing packing;
    const std::vector<optpipe::detail::memory_packing::item> items{{7, 5, 6.0}, {8, 3, 3.0}, {9, 4, 4.5}};
    packing.fill(items, 12);
    for (std::size_t cells = 0; cells <= 12; ++cells) {
        double best = 0.0;
        for (std::size_t a = 0; 5 * a <= cells; ++a)
            for (std::size_t b = 0; 5 * a + 3 * b <= cells; ++b)
                best = std::max(best, 6.0 * static_cast<double>(a) + 3.0 * static_cast<double>(b) +
                                          4.5 * static_cast<double>((cells - 5 * a - 3 * b) / 4));
        CHECK(packing.value(cells) == doctest::Approx(best));
        double packed = 0.0;
        packing.for_each_packed(cells, [&](std::size_t id) { packed += id == 7 ? 6.0 : id == 8 ? 3.0 : 4.5; });
        CHECK(packed == doctest::Approx(best));
    }
}
