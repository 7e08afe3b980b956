// Checks that the oracles can be trusted: against problems with known results, and against each other.
#include "oracle/exhaustive.hpp"

#include "optpipe/pipeline/make_problem.hpp"
#include "optpipe/pipeline/validate_problem.hpp"
#include "optpipe/schedule/time/simulate.hpp"
#include "oracle/random_problem.hpp"
#include "oracle/random_schedule.hpp"
#include "oracle/reference_checker.hpp"
#include "oracle/spelled.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <set>
#include <string>
#include <utility>

namespace {

using optpipe::memory_size;
using optpipe::objective_kind;
using optpipe::rank;
using optpipe::stage;
using optpipe::transfer_times;
using oracle::exhaustive_optimum;
using oracle::judge;
using oracle::spelled_schedule;
using namespace optpipe::literals;

template <class Placement = optpipe::placement::linear>
optpipe::problem unit(std::size_t ranks, std::size_t microbatches, memory_size limit = memory_size::unlimited(),
                      Placement where = {}) {
    const optpipe::graph<optpipe::dynamic, optpipe::dynamic, Placement> g{ranks, microbatches, where};
    const optpipe::stage_costs each{1_ms, 1_ms, 1_ms, 1_gb, 1_gb, {}};
    return make_problem(to_any_graph(g), optpipe::uniform_memory{each}, limit);
}

double optimum_of(const optpipe::problem& p) {
    const auto best = exhaustive_optimum(p, 1.0, 2'000'000);
    REQUIRE(best.proven);
    REQUIRE(best.objective.has_value());
    const auto judged = judge(p, best.schedule);
    CHECK(judged.text() == "");
    CHECK(judged.objective == doctest::Approx(*best.objective));
    return *best.objective;
}

} // namespace

TEST_CASE("optima that are known") {
    // Without split, 1F1B is the best there is: (M + P − 1) (F + B).
    for (const auto& [ranks, count] : {std::pair{1, 3}, std::pair{2, 2}, std::pair{2, 3}, std::pair{3, 2}}) {
        auto p = unit(static_cast<std::size_t>(ranks), static_cast<std::size_t>(count));
        p.split_backward = false;
        CHECK(optimum_of(p) == doctest::Approx(3.0 * (count + ranks - 1)));
        // Zero bubble: the last rank starts at P − 1 and never waits, nor does the first after its first gradient.
        p.split_backward = true;
        CHECK(optimum_of(p) == doctest::Approx(std::max(3.0 * count + ranks - 1, 2.0 * count + 2 * ranks - 1)));
    }
    // One stash at a time, kept until W ends: one microbatch after the other.
    CHECK(optimum_of(unit(2, 2, 1_gb)) == doctest::Approx(10.0));
    // Controllable Memory, k = 2 and 3 of 2 × 2 stashes: 6m + 6p − 3k − 1 is a lower bound there.
    CHECK(optimum_of(unit(2, 2, 2_gb, optpipe::placement::v{})) >= 17.0);
    CHECK(optimum_of(unit(2, 2, 3_gb, optpipe::placement::v{})) >= 14.0);
}

TEST_CASE("offloading buys what memory lacks") {
    auto p = unit(1, 2, 1_gb);
    p.set_stage(stage{0}, {2_ms, 1_ms, 1_ms, 1_gb, 0.5_gb, {}});
    CHECK(optimum_of(p) == doctest::Approx(8.0));
    // Stage 1 of the same rank takes a while: the stash of stage 0 can be away meanwhile.
    auto q = unit(1, 1, 2_gb, optpipe::placement::v{});
    CHECK(optimum_of(q) == doctest::Approx(6.0));
    q.memory_limit[rank{0}] = 1_gb;
    CHECK_FALSE(exhaustive_optimum(q, 1.0).objective.has_value());
    q.change_stage(stage{0}, [&](auto& c) { c.transfer = transfer_times{2_ms, 3_ms}; });
    // F, out, F, I, W, and in, I, W.
    CHECK(optimum_of(q) == doctest::Approx(11.0));
    q.host_memory_limit[rank{0}] = 0.5_gb;
    CHECK_FALSE(exhaustive_optimum(q, 1.0).objective.has_value());
}

TEST_CASE("recomputation buys what memory lacks, ahead or inside the backward") {
    // One stash at a time, or two of which one is recomputed.
    auto p = unit(2, 2, 1.25_gb);
    CHECK(optimum_of(p) == doctest::Approx(10.0));
    for (auto& list : p.storage) {
        list.push_back({"inside", 0.25_gb, {}, 1_ms, {}, {}});
    }
    CHECK(optimum_of(p) == doctest::Approx(8.0));
    for (const stage s : p.graph.all_stages())
        p.set_stage(s, p.costs[s]);
    CHECK(optimum_of(p) == doctest::Approx(10.0));
    // Ahead, on the first rank: the second one is busy meanwhile, which has 8 of work after 1, and 2 follow.
    for (auto& list : p.storage)
        list = {{"ahead", 0.25_gb, 1_ms, {}, {}, {}}};
    auto whole = p;
    whole.split_backward = false;
    CHECK(optimum_of(whole) == doctest::Approx(11.0));
    // A part of the stash goes to the host, also if it is recomputed.
    auto q = unit(1, 1, 1.5_gb, optpipe::placement::v{});
    CHECK_FALSE(exhaustive_optimum(q, 1.0).objective.has_value());
    q.storage[stage{0}].clear();
    q.storage[stage{0}].push_back({"half", 1_gb, {}, {}, 0.5_gb, transfer_times{1_ms, 1_ms}});
    CHECK(optimum_of(q) == doctest::Approx(8.0));
    q.storage[stage{0}].clear();
    q.storage[stage{0}].push_back({"both", 0.75_gb, 1_ms, {}, 0.25_gb, transfer_times{1_ms, 1_ms}});
    CHECK(optimum_of(q) == doctest::Approx(9.0));
}

TEST_CASE("span may gain by starting late, by a fraction of a step too") {
    auto p = unit(2, 1);
    p.costs[stage{0}].forward = 5_ms;
    p.objective = objective_kind::span;
    CHECK(optimum_of(p) == doctest::Approx(9.0));
    p.p2p = optpipe::hop_times<>{3_ms};
    CHECK(optimum_of(p) == doctest::Approx(15.0));
}

TEST_CASE("the best of all schedules is valid, and none that is drawn is better") {
    constexpr std::uint64_t seed = 1;
    int reached = 0;
    for (std::uint64_t i = 0; i < 150; ++i) {
        CAPTURE(seed);
        CAPTURE(i);
        oracle::random_numbers random{seed * 1'000'003 + i};
        const auto given = oracle::make_random_problem(random, {.cells = 6, .storage_percent = i % 3 == 0 ? 100U : 0U});
        const auto& p = given.problem;
        const auto best = exhaustive_optimum(p, given.grid, 20'000);
        if (!best.proven) continue;
        REQUIRE(best.objective.has_value());
        const auto judged = judge(p, best.schedule);
        CHECK(judged.text() == "");
        CHECK(judged.objective == doctest::Approx(*best.objective));
        bool equal = false;
        for (int k = 0; k < 100; ++k) {
            auto drawn = *simulate(p, oracle::random_order(random, p));
            if (p.objective == objective_kind::span) postpone_warm_up(p, drawn);
            const auto other = judge(p, drawn);
            CHECK(other.text() == "");
            CHECK(other.objective >= *best.objective - 1e-9);
            equal = equal || other.objective <= *best.objective + 1e-9;
        }
        reached += equal ? 1 : 0;
    }
    CHECK(reached > 75);
}

TEST_CASE("the best of all schedules of a graph is valid, and none that is drawn is better") {
    constexpr std::uint64_t seed = 3;
    int reached = 0;
    int proven = 0;
    for (std::uint64_t i = 0; i < 150; ++i) {
        CAPTURE(seed);
        CAPTURE(i);
        oracle::random_numbers random{seed * 1'000'003 + i};
        const auto given = oracle::make_random_problem(
            random, {.cells = 6, .storage_percent = i % 3 == 0 ? 100U : 0U, .graph_percent = 100});
        const auto& p = given.problem;
        const auto best = exhaustive_optimum(p, given.grid, 5'000);
        if (!best.proven) continue;
        ++proven;
        REQUIRE(best.objective.has_value());
        const auto judged = judge(p, best.schedule);
        CHECK(judged.text() == "");
        CHECK(judged.objective == doctest::Approx(*best.objective));
        bool equal = false;
        for (int k = 0; k < 100; ++k) {
            auto drawn = *simulate(p, oracle::random_order(random, p));
            if (p.objective == objective_kind::span) postpone_warm_up(p, drawn);
            const auto other = judge(p, drawn);
            CHECK(other.text() == "");
            CHECK(other.objective >= *best.objective - 1e-9);
            equal = equal || other.objective <= *best.objective + 1e-9;
        }
        reached += equal ? 1 : 0;
    }
    CHECK(proven > 100);
    CHECK(reached > 90);
}

TEST_CASE("what is drawn is a problem, of every kind") {
    constexpr std::uint64_t seed = 2;
    std::set<std::string> kinds;
    for (std::uint64_t i = 0; i < 500; ++i) {
        CAPTURE(seed);
        CAPTURE(i);
        oracle::random_numbers random{seed * 1'000'003 + i};
        const auto given = oracle::make_random_problem(random);
        const auto& p = given.problem;
        const auto found = optpipe::validate(p);
        REQUIRE_MESSAGE(found.empty(), found.front().text());
        CHECK(fits_one_at_a_time(p));
        kinds.insert(one_stage_per_rank(p.graph) ? "one stage per rank" : "several stages per rank");
        kinds.insert(p.split_backward ? "split" : "whole");
        kinds.insert(p.objective == objective_kind::span ? "span" : "makespan");
        kinds.insert(p.p2p.is_uniform() ? "uniform p2p" : "p2p matrix");
        kinds.insert(p.transfer.engines == 2 ? "two engines" : "one engine");
        kinds.insert(p.transfer.duplex == optpipe::duplex_kind::half ? "half duplex" : "full duplex");
        for (const rank r : p.graph.all_ranks()) {
            kinds.insert(p.memory_limit[r].is_unlimited()                 ? "unlimited"
                         : p.memory_limit[r] == least_memory(p, r).needed ? "least"
                                                                          : "limited");
            if (!p.host_memory_limit[r].is_unlimited()) kinds.insert("limited host");
            if (p.transfer.link[r] != r.value()) kinds.insert("shared link");
        }
        for (const auto& options : p.storage)
            if (const auto& last = options.back().transfer)
                kinds.insert(last->offload == 0_ms ? "transfer in no time" : "transfer");
        for (const auto& c : p.costs) {
            if (c.weight_stash > c.activation) kinds.insert("weight stash above activation");
            if (c.activation == 0_gb) kinds.insert("no activation");
        }
    }
    CHECK(kinds.size() == 21);
}

TEST_CASE("the reference checker refuses what it should") {
    auto p = unit(2, 2, 2_gb);
    p.change_stages([&](auto& c) { c.transfer = transfer_times{1_ms, 1_ms}; });
    const auto broken = [&](const std::string& text) { return judge(p, spelled_schedule(p, text)).broken.size(); };
    CHECK(broken("0F0@0 0F1@1 1F0@1 1F1@2 1B0@3 1B1@5 0B0@5 0B1@7") == 0);
    CHECK(broken("0F0@0 0F1@1 1F0@1 1F1@2 1B0@3 1B1@5 0B0@5") == 1);
    CHECK(broken("0F0@0 0F1@1 1F0@1 1F1@2 1B0@3 1B1@5 0B0@5 0B1@7 0W1@9") == 1);
    CHECK(broken("0F0@0 0F1@1 1F0@1 1F1@2 1B0@3 1B1@5 0B0@4 0B1@7") == 1);
    CHECK(broken("0F0@0 0F1@1 1F0@1 1F1@1.5 1B0@3 1B1@5 0B0@5 0B1@7") == 2);
    CHECK(broken("0F0@-1 0F1@0 1F0@1 1F1@2 1B0@3 1B1@5 0B0@5 0B1@7") == 1);
    CHECK(broken("0F0@0 0OFFLOAD0@1 0F1@1 1F0@1 1F1@2 1B0@3 1B1@5 0B0@5 0B1@7") == 1);
    CHECK(broken("0F0@0 0OFFLOAD0@1 0RELOAD0@2 0F1@2 1F0@1 1F1@3 1B0@4 1B1@6 0B0@6 0B1@8") == 0);
    CHECK(broken("0F0@0 0OFFLOAD0@1 0RELOAD0@1.5 0F1@2 1F0@1 1F1@3 1B0@4 1B1@6 0B0@6 0B1@8") == 2);
    p.memory_limit[rank{1}] = 1_gb;
    CHECK(broken("0F0@0 0F1@1 1F0@1 1F1@2 1B0@3 1B1@5 0B0@5 0B1@7") == 1);
    CHECK(broken("0F0@0 0F1@1 1F0@1 1B0@2 1F1@4 1B1@5 0B0@4 0B1@7") == 0);
    p.host_memory_limit[rank{0}] = 0.5_gb;
    CHECK(broken("0F0@0 0OFFLOAD0@1 0RELOAD0@2 0F1@3 1F0@1 1B0@2 1F1@4 1B1@5 0B0@4 0B1@7") == 1);
}
