#include "optpipe/schedule/time/simulate.hpp"

#include "optpipe/core/outcome.hpp"
#include "optpipe/pipeline/make_problem.hpp"
#include "optpipe/schedule/builders/gpipe.hpp"
#include "optpipe/schedule/builders/one_forward_one_backward.hpp"
#include "optpipe/schedule/time/validate.hpp"
#include "oracle/random_cases.hpp"
#include "oracle/random_problem.hpp"
#include "oracle/random_schedule.hpp"
#include "oracle/reference_checker.hpp"
#include "oracle/spelled.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <map>
#include <string>

namespace {

using optpipe::duration;
using optpipe::memory_size;
using optpipe::operation;
using optpipe::rank;
using optpipe::refusal_reason;
using optpipe::stage;
using optpipe::transfer_times;
using oracle::spell;
using oracle::spelled_order;
using oracle::spelled_schedule;
using namespace optpipe::literals;

/// F, I and W take 1 each; a stash takes 1, and half of that from I to W.
optpipe::problem linear(std::size_t ranks, std::size_t microbatches) {
    const optpipe::graph<optpipe::dynamic, optpipe::dynamic> g{ranks, microbatches};
    const optpipe::stage_costs unit{1_ms, 1_ms, 1_ms, 1_gb, 0.5_gb, {}};
    return make_problem(to_any_graph(g), optpipe::uniform_memory{unit});
}
optpipe::problem with_transfers(std::size_t ranks, std::size_t microbatches, duration out, duration in) {
    auto p = linear(ranks, microbatches);
    p.change_stages([&](auto& c) { c.transfer = transfer_times{out, in}; });
    return p;
}

/// The times of an order, after both checkers agreed with them; otherwise the reason why it has none.
std::string times(const optpipe::problem& p, const std::string& order) {
    const auto timed = simulate(p, spelled_order(p, order));
    if (!timed) return describe(timed.why());
    CHECK(validate(p, *timed).empty());
    CHECK(oracle::judge(p, *timed).text() == "");
    return spell(p, *timed);
}

} // namespace

TEST_CASE("a rank does one thing at a time, and a gradient waits for the one before it") {
    CHECK(times(linear(2, 2), "0F0 0F1 1F0 1F1 1I0 0I0 1W0 1B1 0B1 0W0") ==
          "0F0@0 0F1@1 1F0@1 1F1@2 1I0@3 0I0@4 1W0@4 1B1@5 0B1@7 0W0@9");
}

TEST_CASE("between ranks it takes p2p") {
    auto p = linear(2, 1);
    p.p2p = optpipe::hop_times<>{0.5_ms};
    CHECK(times(p, "0F0 1F0 1B0 0B0") == "0F0@0 1F0@1.5 1B0@2.5 0B0@5");
    optpipe::bounded_vector<duration, optpipe::dynamic> matrix;
    for (const duration d : {9_ms, 0.25_ms, 2_ms, 9_ms})
        matrix.push_back(d);
    p.p2p = optpipe::hop_times<>{2, matrix};
    CHECK(times(p, "0F0 1F0 1B0 0B0") == "0F0@0 1F0@1.25 1B0@2.25 0B0@6.25");
    // I passes on its gradient as soon as it ends; nothing waits for W.
    CHECK(times(p, "0F0 1F0 1I0 1W0 0I0 0W0") == "0F0@0 1F0@1.25 1I0@2.25 1W0@3.25 0I0@5.25 0W0@6.25");
}

TEST_CASE("on one rank there is no p2p") {
    const auto g = to_any_graph(optpipe::graph<1, 1, optpipe::placement::v>{});
    auto p = make_problem(g, optpipe::unit_memory{});
    p.p2p = optpipe::hop_times<>{5_ms};
    CHECK(times(p, "0F0 1F0 1B0 0B0") == "0F0@0 1F0@1 1B0@2 0B0@4");
}

TEST_CASE("one copy engine copies one stash at a time, two engines one each way") {
    auto p = with_transfers(1, 2, 2_ms, 2_ms);
    const std::string order = "0F0 0OFFLOAD0 0F1 0OFFLOAD1 0RELOAD0 0B0 0RELOAD1 0B1";
    CHECK(times(p, order) == "0F0@0 0F1@1 0OFFLOAD0@1 0OFFLOAD1@3 0RELOAD0@5 0B0@7 0RELOAD1@7 0B1@9");
    p.transfer.engines = 2;
    CHECK(times(p, order) == "0F0@0 0F1@1 0OFFLOAD0@1 0OFFLOAD1@3 0RELOAD0@3 0B0@5 0RELOAD1@5 0B1@7");
    // Two engines on a link that carries one transfer are no better than one.
    p.transfer.duplex = optpipe::duplex_kind::half;
    CHECK(times(p, order) == "0F0@0 0F1@1 0OFFLOAD0@1 0OFFLOAD1@3 0RELOAD0@5 0B0@7 0RELOAD1@7 0B1@9");
}

TEST_CASE("ranks on one link wait for each other's transfers, both ways only if it is half duplex") {
    auto p = with_transfers(2, 1, 4_ms, 4_ms);
    const std::string order = "0F0 0OFFLOAD0 0RELOAD0 1F0 1OFFLOAD0 1RELOAD0 1B0 0B0";
    CHECK(times(p, order) == "0F0@0 0OFFLOAD0@1 1F0@1 1OFFLOAD0@2 0RELOAD0@5 1RELOAD0@6 1B0@10 0B0@12");
    p.transfer.share_link(rank{0}, rank{1});
    CHECK(times(p, order) == "0F0@0 0OFFLOAD0@1 1F0@1 0RELOAD0@5 1OFFLOAD0@5 1RELOAD0@9 1B0@13 0B0@15");
    p.transfer.duplex = optpipe::duplex_kind::half;
    CHECK(times(p, order) == "0F0@0 0OFFLOAD0@1 1F0@1 0RELOAD0@5 1OFFLOAD0@9 1RELOAD0@13 1B0@17 0B0@19");
}

TEST_CASE("a forward waits until OFFLOAD has freed memory, and RELOAD until a gradient has") {
    auto p = with_transfers(1, 2, 2_ms, 3_ms);
    p.memory_limit[rank{0}] = 1_gb;
    const std::string order = "0F0 0OFFLOAD0 0F1 0B1 0RELOAD0 0B0";
    CHECK(times(p, order) == "0F0@0 0OFFLOAD0@1 0F1@3 0B1@4 0RELOAD0@6 0B0@9");
    p.memory_limit[rank{0}] = 2_gb;
    CHECK(times(p, order) == "0F0@0 0F1@1 0OFFLOAD0@1 0B1@2 0RELOAD0@3 0B0@6");
}

TEST_CASE("I frees what W doesn't need, W the rest") {
    auto p = linear(1, 3);
    p.memory_limit[rank{0}] = 2_gb;
    CHECK(times(p, "0F0 0I0 0F1 0W0 0I1 0F2 0W1 0B2") == "0F0@0 0I0@1 0F1@2 0W0@3 0I1@4 0F2@5 0W1@6 0B2@7");
    CHECK(times(p, "0F0 0I0 0F1 0F2 0W0 0I1 0W1 0B2") == "rank 0 needs 2.5 of memory, its limit is 2");
}

TEST_CASE("what W needs beyond the activation is taken when I starts") {
    auto p = linear(2, 2);
    for (auto& c : p.costs)
        c.weight_stash = 1.5_gb;
    p.memory_limit[rank{1}] = 2.5_gb;
    // Rank 1 holds 2 when I needs another 0.5; the next I would need 0.5 more, so it waits for W.
    CHECK(times(p, "0F0 0F1 1F0 1F1 1I0 1W0 1I1 1W1 0B0 0B1") ==
          "0F0@0 0F1@1 1F0@1 1F1@2 1I0@3 0B0@4 1W0@4 1I1@5 0B1@6 1W1@6");
    CHECK(times(p, "0F0 0F1 1F0 1F1 1I0 1I1 1W0 1W1 0B0 0B1") == "rank 1 needs 3 of memory, its limit is 2.5");
    p.memory_limit[rank{1}] = 2_gb;
    CHECK(times(p, "0F0 0F1 1F0 1F1 1B0 1I1 1W1 0B0 0B1") == "0F0@0 0F1@1 1F0@1 1F1@2 1B0@3 0B0@5 1I1@5 1W1@6 0B1@7");
}

TEST_CASE("memory is waited for beyond the compute lane") {
    // RELOAD of microbatch 0 acquires its memory when B of 1 has ended, although the copy engine is free at 3.
    auto p = with_transfers(1, 3, 1_ms, 1_ms);
    p.memory_limit[rank{0}] = 2_gb;
    CHECK(times(p, "0F0 0OFFLOAD0 0F1 0F2 0B1 0RELOAD0 0B2 0B0") ==
          "0F0@0 0F1@1 0OFFLOAD0@1 0F2@2 0B1@3 0B2@5 0RELOAD0@5 0B0@7");
    p.memory_limit[rank{0}] = memory_size::unlimited();
    CHECK(times(p, "0F0 0OFFLOAD0 0F1 0F2 0B1 0RELOAD0 0B2 0B0") ==
          "0F0@0 0F1@1 0OFFLOAD0@1 0F2@2 0RELOAD0@2 0B1@3 0B2@5 0B0@7");
}

TEST_CASE("the host holds a stash from the start of OFFLOAD to the end of RELOAD") {
    auto p = with_transfers(1, 2, 2_ms, 2_ms);
    p.transfer.engines = 2;
    const std::string order = "0F0 0OFFLOAD0 0F1 0RELOAD0 0OFFLOAD1 0B0 0RELOAD1 0B1";
    CHECK(times(p, order) == "0F0@0 0F1@1 0OFFLOAD0@1 0OFFLOAD1@3 0RELOAD0@3 0B0@5 0RELOAD1@5 0B1@7");
    p.host_memory_limit[rank{0}] = 1_gb;
    CHECK(times(p, order) == "0F0@0 0F1@1 0OFFLOAD0@1 0RELOAD0@3 0B0@5 0OFFLOAD1@5 0RELOAD1@7 0B1@9");
    CHECK(times(p, "0F0 0OFFLOAD0 0F1 0OFFLOAD1 0RELOAD0 0B0 0RELOAD1 0B1") ==
          "rank 0 needs 2 of host memory, its limit is 1");
}

TEST_CASE("a refusal names the rank that lacks most, what it needs, and what it has") {
    auto p = linear(3, 4);
    for (const rank r : p.graph.all_ranks())
        p.memory_limit[r] = 3.5_gb;
    p.memory_limit[rank{1}] = 1.25_gb;
    const auto refused = simulate(p, optpipe::gpipe(p.graph));
    REQUIRE_FALSE(refused.has_value());
    CHECK(refused.why().reason == refusal_reason::over_memory);
    CHECK(refused.why().rank == rank{1});
    CHECK(refused.why().needed == 4_gb);
    CHECK(refused.why().limit == 1.25_gb);
    CHECK(memory_needed(p, optpipe::gpipe(p.graph))[rank{2}] == 4_gb);
    CHECK(memory_needed(p, optpipe::one_forward_one_backward(p.graph))[rank{1}] == 2_gb);
}

TEST_CASE("what the limits must be at least is what the order needs") {
    constexpr std::uint64_t seed = 11;
    for (std::uint64_t i = 0; i < 200; ++i) {
        CAPTURE(seed);
        CAPTURE(i);
        oracle::random_numbers random{seed * 1'000'003 + i};
        auto p = oracle::make_random_problem(random, {.ranks = 4, .stages = 8, .microbatches = 6, .cells = 24}).problem;
        const auto given = oracle::random_order(random, p);
        const auto device = memory_needed(p, given);
        const auto host = memory_needed(p, given, optpipe::memory_kind::host);
        for (const rank r : p.graph.all_ranks()) {
            p.memory_limit[r] = device[r];
            p.host_memory_limit[r] = host[r];
        }
        CHECK(simulate(p, given).has_value());
        for (const rank r : p.graph.all_ranks()) {
            auto less = p;
            if (device[r] <= memory_size{}) continue;
            less.memory_limit[r] = 0.99 * device[r];
            const auto refused = simulate(less, given);
            REQUIRE_FALSE(refused.has_value());
            CHECK(refused.why().reason == refusal_reason::over_memory);
            CHECK(refused.why().rank == r);
            CHECK(refused.why().needed == device[r]);
        }
    }
}

TEST_CASE("an order that can't be done is refused, with the place") {
    const auto refusal_of = [](const optpipe::problem& p, const std::string& order) {
        const auto timed = simulate(p, spelled_order(p, order));
        REQUIRE_FALSE(timed.has_value());
        CHECK(timed.why().reason == refusal_reason::not_executable);
        return std::to_string(timed.why().position) + " " + std::string{timed.why().sentence};
    };
    const auto p = linear(2, 1);
    CHECK(refusal_of(p, "") == "0 4 operations are missing, as 0F0 on rank 0");
    CHECK(refusal_of(p, "0F0 1F0 1B0") ==
          "3 1 operation is missing: 0B0 (or 0I0 and 0W0) on rank 0, though what it waits for is there: 0F0 and 1B0");
    CHECK(refusal_of(p, "0F0 1F0 1I0 0B0") ==
          "4 1 operation is missing: 1W0 on rank 1, though what it waits for is there: 1I0");
    CHECK(refusal_of(p, "0F0 0F0 1F0 1B0 0B0") == "1 0F0 (rank 0) appears twice");
    CHECK(refusal_of(p, "1F0 0F0 1B0 0B0") == "0 1F0 (rank 1) comes before 0F0 (rank 0), which it waits for");
    CHECK(refusal_of(p, "0F0 1F0 0B0 1B0") == "2 0B0 (rank 0) comes before 1B0 or 1I0 (rank 1), which it waits for");
    CHECK(refusal_of(p, "0F0 1F0 1W0 1I0 0B0") == "2 1W0 (rank 1) comes before 1I0 (rank 1), which it waits for");
    CHECK(refusal_of(p, "0F0 1F0 1I0 1B0 0B0") == "3 1B0 (rank 1) comes after 1I0: either B, or I and W");
    CHECK(refusal_of(p, "0F0 1F0 1B0 1W0 0B0") == "3 1W0 (rank 1) comes after 1B0: either B, or I and W");
    const std::string unknown = ": no such stage or microbatch, or not with its storage option";
    CHECK(refusal_of(p, "0F0 2F0 1F0 1B0 0B0") == "1 the problem has no 2F0" + unknown);
    CHECK(refusal_of(p, "0F0 1F0 1B0 0B0 0F1") == "4 the problem has no 0F1" + unknown);
    CHECK(refusal_of(p, "0F0 0OFFLOAD0 1F0 1B0 0RELOAD0 0B0") == "1 the problem has no 0OFFLOAD0" + unknown);

    const auto q = with_transfers(2, 1, 1_ms, 1_ms);
    CHECK(refusal_of(q, "0OFFLOAD0 0F0 1F0 1B0 0RELOAD0 0B0") ==
          "0 0OFFLOAD0 (rank 0) comes before 0F0 (rank 0), which it waits for");
    CHECK(refusal_of(q, "0F0 0RELOAD0 0OFFLOAD0 1F0 1B0 0B0") ==
          "1 0RELOAD0 (rank 0) comes before 0OFFLOAD0 (rank 0), which it waits for");
    CHECK(refusal_of(q, "0F0 0OFFLOAD0 1F0 1B0 0B0 0RELOAD0") ==
          "4 0B0 (rank 0) comes before 0RELOAD0 (rank 0), which it waits for");
    CHECK(refusal_of(q, "0F0 1F0 1B0 0B0 0OFFLOAD0 0RELOAD0") ==
          "3 0B0 (rank 0) comes before 0RELOAD0 (rank 0), which it waits for");
    CHECK(refusal_of(q, "0F0 0OFFLOAD0 1F0 1B0 0RELOAD0 0OFFLOAD0 0B0") == "5 0OFFLOAD0 (rank 0) appears twice");
    CHECK(refusal_of(q, "0F0 0OFFLOAD0 1F0 1B0") ==
          "4 2 operations are missing, as 0RELOAD0 on rank 0, though what it waits for is there: 0OFFLOAD0");

    auto whole = p;
    whole.split_backward = false;
    CHECK(refusal_of(whole, "0F0 1F0 1I0 1W0 0B0") == "2 1I0 (rank 1): only B may be used, split_backward is false");
    CHECK(refusal_of(whole, "0F0 1F0 1B0") ==
          "3 1 operation is missing: 0B0 on rank 0, though what it waits for is there: 0F0 and 1B0");
}

TEST_CASE("the order of a valid schedule gives a valid schedule that starts nothing later") {
    constexpr std::uint64_t seed = 21;
    std::uint64_t with_offloading = 0;
    std::uint64_t earlier = 0;
    for (std::uint64_t i = 0; i < oracle::random_cases(1500); ++i) {
        CAPTURE(seed);
        CAPTURE(i);
        oracle::random_numbers random{seed * 1'000'003 + i};
        const auto given =
            oracle::make_random_problem(
            random, {.ranks = 4, .stages = 8, .microbatches = 6, .cells = 20, .storage_percent = 50});
        const auto& p = given.problem;
        const auto s = oracle::random_schedule(random, given);
        INFO(spell(s));
        REQUIRE(oracle::judge(p, s).text() == "");

        const auto again = simulate(p, order_of(s));
        REQUIRE_MESSAGE(again.has_value(), describe(again.why()));
        CHECK(validate(p, *again).empty());
        CHECK(oracle::judge(p, *again).text() == "");
        REQUIRE(again->operations.size() == s.operations.size());
        std::map<operation, duration> start;
        for (const auto& timed : s.operations)
            start[timed.op] = timed.start;
        bool moved = false;
        for (const auto& timed : again->operations) {
            CHECK(timed.start <= start.at(timed.op) + 1e-9_ms);
            moved = moved || timed.start < start.at(timed.op) - 1e-9_ms;
        }
        earlier += moved ? 1 : 0;
        with_offloading += measure(p, s).offloads > 0 ? 1 : 0;
    }
    CHECK(with_offloading >= oracle::random_cases(200));
    CHECK(earlier >= oracle::random_cases(300));
}

TEST_CASE("a warm-up is put off as far as what follows it allows") {
    auto p = linear(2, 2);
    p.costs[stage{0}].forward = 3_ms;
    auto s = *simulate(p, optpipe::gpipe(p.graph));
    CHECK(spell(p, s) == "0F0@0 0F1@3 1F0@3 1F1@6 1B0@7 0B0@9 1B1@9 0B1@11");
    postpone_warm_up(p, s);
    CHECK(spell(p, s) == "0F0@0 0F1@3 1F0@5 1F1@6 1B0@7 0B0@9 1B1@9 0B1@11");
    // 0F0 is postponed only as far as p2p to 1F0 and its own offload allow.
    p.costs[stage{0}].forward = 1_ms;
    s = spelled_schedule(p, "0F0@0 1F0@8 1B0@9 0F1@11 1F1@12 1B1@13 0B0@15 0B1@17");
    postpone_warm_up(p, s);
    CHECK(spell(p, s) == "0F0@7 1F0@8 1B0@9 0F1@11 1F1@12 1B1@13 0B0@15 0B1@17");
    p.p2p = optpipe::hop_times<>{2_ms};
    s = spelled_schedule(p, "0F0@0 1F0@8 1B0@9 0F1@10 1F1@13 1B1@14 0B0@18 0B1@20");
    postpone_warm_up(p, s);
    CHECK(spell(p, s) == "0F0@5 1F0@8 1B0@9 0F1@10 1F1@13 1B1@14 0B0@18 0B1@20");
    p.change_stage(stage{0}, [&](auto& c) { c.transfer = transfer_times{2_ms, 1_ms}; });
    s = spelled_schedule(p, "0F0@0 0OFFLOAD0@2 0RELOAD0@4 1F0@8 1B0@9 0F1@10 1F1@13 1B1@14 0B0@18 0B1@20");
    postpone_warm_up(p, s);
    CHECK(spell(p, s) == "0F0@1 0OFFLOAD0@2 0RELOAD0@4 1F0@8 1B0@9 0F1@10 1F1@13 1B1@14 0B0@18 0B1@20");
}

TEST_CASE("putting off the warm-up keeps a schedule valid and no rank engaged for longer") {
    constexpr std::uint64_t seed = 31;
    std::uint64_t shorter = 0;
    for (std::uint64_t i = 0; i < oracle::random_cases(1000); ++i) {
        CAPTURE(seed);
        CAPTURE(i);
        oracle::random_numbers random{seed * 1'000'003 + i};
        auto given = oracle::make_random_problem(
            random, {.ranks = 4, .stages = 8, .microbatches = 6, .cells = 20, .storage_percent = 50});
        auto& p = given.problem;
        p.objective = optpipe::objective_kind::span;
        const auto s = oracle::random_schedule(random, given);
        auto late = s;
        postpone_warm_up(p, late);
        INFO(spell(s));
        CHECK(validate(p, late).empty());
        const auto before = oracle::judge(p, s);
        const auto after = oracle::judge(p, late);
        CHECK(after.text() == "");
        CHECK(after.objective <= before.objective + 1e-9);
        for (std::size_t r = 0; r < p.graph.ranks(); ++r)
            CHECK(after.peak_memory[r] <= before.peak_memory[r] + 1e-9);
        shorter += after.objective < before.objective - 1e-9 ? 1 : 0;
        for (const auto& timed : late.operations)
            CHECK((timed.start > 0_ms || timed.op.kind == optpipe::operation_kind::forward));
    }
    CHECK(shorter >= oracle::random_cases(50));
}

namespace {

/// Options 0 to 3: kept, recomputed ahead, inside, and a transfer of half with recomputation.
optpipe::problem with_storage_options(std::size_t ranks, std::size_t microbatches) {
    auto p = linear(ranks, microbatches);
    for (const stage s : p.graph.all_stages()) {
        p.storage[s].push_back({"ahead", 0.25_gb, 2_ms, {}, {}, {}});
        p.storage[s].push_back({"inside", 0.25_gb, {}, 2_ms, {}, {}});
        p.storage[s].push_back({"both", 0.5_gb, 1_ms, {}, 0.25_gb, transfer_times{1_ms, 1_ms}});
    }
    return p;
}

} // namespace

TEST_CASE("recomputation runs while the gradient is on its way, if it is ahead") {
    const auto p = with_storage_options(2, 1);
    CHECK(times(p, "0F0:1 0RECOMPUTE0:1 1F0 1B0 0B0:1") == "0F0:1@0 0RECOMPUTE0:1@1 1F0@1 1B0@2 0B0:1@4");
    CHECK(times(p, "0F0:2 1F0 1B0 0I0:2 0W0:2") == "0F0:2@0 1F0@1 1B0@2 0I0:2@4 0W0:2@7");
    CHECK(times(p, "0F0:3 0OFFLOAD0:3 0RELOAD0:3 0RECOMPUTE0:3 1F0 1B0 0B0:3") ==
          "0F0:3@0 0OFFLOAD0:3@1 1F0@1 0RELOAD0:3@2 1B0@2 0RECOMPUTE0:3@3 0B0:3@4");
}

TEST_CASE("recomputation waits for memory") {
    auto p = with_storage_options(1, 2);
    p.memory_limit[rank{0}] = 1.25_gb;
    CHECK(times(p, "0F0:1 0F1 0B1 0RECOMPUTE0:1 0B0:1") == "0F0:1@0 0F1@1 0B1@2 0RECOMPUTE0:1@4 0B0:1@6");
    CHECK(times(p, "0F0:1 0F1 0RECOMPUTE0:1 0B1 0B0:1") == "rank 0 needs 2 of memory, its limit is 1.25");
}

TEST_CASE("an order that doesn't follow its storage options is refused, with the place") {
    const auto p = with_storage_options(1, 1);
    const auto refusal_of = [&](const std::string& order) {
        const auto timed = simulate(p, spelled_order(p, order));
        REQUIRE_FALSE(timed.has_value());
        CHECK(timed.why().reason == refusal_reason::not_executable);
        return std::to_string(timed.why().position) + " " + std::string{timed.why().sentence};
    };
    const std::string unknown = ": no such stage or microbatch, or not with its storage option";
    CHECK(refusal_of("0F0:1 0B0:1") == "1 0B0 (rank 0) comes before 0RECOMPUTE0 (rank 0), which it waits for");
    CHECK(refusal_of("0F0:3 0RECOMPUTE0:3 0B0:3") ==
          "1 0RECOMPUTE0 (rank 0) comes before 0RELOAD0 (rank 0), which it waits for");
    CHECK(refusal_of("0RECOMPUTE0:1") == "0 0RECOMPUTE0 (rank 0) comes before 0F0 (rank 0), which it waits for");
    CHECK(refusal_of("0F0:1 0B0") == "1 0B0 (rank 0) has another storage option than its forward");
    CHECK(refusal_of("0F0 0RECOMPUTE0 0B0") == "1 the problem has no 0RECOMPUTE0" + unknown);
    CHECK(refusal_of("0F0:2 0OFFLOAD0:2") == "1 the problem has no 0OFFLOAD0" + unknown);
    CHECK(refusal_of("0F0:4") == "0 the problem has no 0F0" + unknown);
    // Also if memory is missing before it.
    auto little = with_storage_options(1, 2);
    little.memory_limit[rank{0}] = 1.25_gb;
    const auto timed = simulate(little, spelled_order(little, "0F0 0F1 0B1 0B0:9"));
    REQUIRE_FALSE(timed.has_value());
    CHECK(timed.why().sentence == "the problem has no 0B0" + unknown);
    CHECK(refusal_of("0F0:1 0RECOMPUTE0:1 0RECOMPUTE0:1") == "2 0RECOMPUTE0 (rank 0) appears twice");
    CHECK(refusal_of("0F0:1") ==
          "1 2 operations are missing, as 0RECOMPUTE0 on rank 0, though what it waits for is there: 0F0");
    CHECK(refusal_of("0F0:3") ==
          "1 4 operations are missing, as 0OFFLOAD0 on rank 0, though what it waits for is there: 0F0");
}
