#include "optpipe/schedule/construct/offload_placement.hpp"

#include "optpipe/pipeline/make_problem.hpp"
#include "optpipe/schedule/builders/gis.hpp"
#include "optpipe/schedule/rules/storage_of_transfers.hpp"
#include "optpipe/schedule/time/postpone_reloads.hpp"
#include "optpipe/schedule/time/simulate.hpp"
#include "optpipe/schedule/time/validate.hpp"
#include "oracle/random_cases.hpp"
#include "oracle/random_problem.hpp"
#include "oracle/reference_checker.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace {

using namespace optpipe;
using namespace optpipe::literals;

struct interval {
    double start, end;
    bool overlaps(const interval& other) const { return start < other.end - 1e-9 && other.start < end - 1e-9; }
};

transfer_pair some_trip(std::size_t m, std::size_t member, double leaves, double due, double out = 1.0,
                        double in = 1.0) {
    return {stage{0}, microbatch{m}, member, duration{leaves}, duration{due}, duration{out}, duration{in}};
}

problem without_device_limits(problem p) {
    for (auto& limit : p.memory_limit)
        limit = memory_size::unlimited();
    return p;
}

} // namespace

TEST_CASE("slots of one period never overlap where engines and links forbid it") {
    for (std::size_t members = 1; members <= 5; ++members)
        for (const bool one_engine : {true, false})
            for (const bool half_duplex : {true, false}) {
                CAPTURE(members);
                CAPTURE(one_engine);
                CAPTURE(half_duplex);
                const detail::slot_pattern pattern{2_ms, members, one_engine, half_duplex};
                const auto period = pattern.period().value();
                const auto apart = [&](duration a, duration b) {
                    for (const double shift : {-period, 0.0, period}) {
                        const interval first{a.value(), a.value() + 2.0};
                        const interval second{b.value() + shift, b.value() + shift + 2.0};
                        if (first.overlaps(second)) return false;
                    }
                    return true;
                };
                for (std::size_t i = 0; i < members; ++i) {
                    if (one_engine || half_duplex) CHECK(apart(pattern.offload_phase(i), pattern.reload_phase(i)));
                    for (std::size_t j = 0; j < i; ++j) {
                        CHECK(apart(pattern.offload_phase(i), pattern.offload_phase(j)));
                        CHECK(apart(pattern.reload_phase(i), pattern.reload_phase(j)));
                        if (half_duplex) CHECK(apart(pattern.offload_phase(i), pattern.reload_phase(j)));
                    }
                }
            }
    // If neighbours share a link, one copies out while the other copies in.
    const detail::slot_pattern pair{1_ms, 2, true, false};
    CHECK(pair.period() == 2_ms);
    CHECK(pair.offload_phase(0) == pair.reload_phase(1));
    CHECK(pair.offload_phase(1) == pair.reload_phase(0));
}

TEST_CASE("offloads take the first slots, reloads the last") {
    std::vector<transfer_pair> transfer_pairs{some_trip(0, 0, 1, 20), some_trip(1, 0, 2, 23), some_trip(2, 0, 9, 24)};
    detail::place_in_slots({1_ms, 1, true, false}, transfer_pairs, duration{1e-9});
    std::sort(transfer_pairs.begin(), transfer_pairs.end(),
              [](const transfer_pair& a, const transfer_pair& b) { return a.microbatch < b.microbatch; });
    CHECK(transfer_pairs[0].offload_start == 1_ms);
    CHECK(transfer_pairs[1].offload_start == 3_ms);
    CHECK(transfer_pairs[2].offload_start == 9_ms);
    CHECK(transfer_pairs[2].reload_start == 22_ms);
    CHECK(transfer_pairs[1].reload_start == 20_ms);
    CHECK(transfer_pairs[0].reload_start == 18_ms);
    for (const auto& t : transfer_pairs)
        CHECK(t.is_in_time(duration{1e-9}));
    CHECK_FALSE(some_trip(0, 0, 1, 20).is_in_time(duration{1e-9}));
}

TEST_CASE("on demand, an offload goes first where it ends before the next reload should start") {
    auto p = to_problem(make_problem(graph<1, 3>{}, unit_memory{}));
    p.change_stage(stage{0}, [&](auto& c) { c.transfer = transfer_times{2_ms, 2_ms}; });
    std::vector<transfer_pair> transfer_pairs{some_trip(0, 0, 0, 10, 2, 2), some_trip(1, 0, 6, 20, 2, 2),
                                              some_trip(2, 0, 17, 30, 2, 2)};
    const std::vector<rank> members{rank{0}};
    detail::transfers_on_demand<any_graph>{p, members, transfer_pairs, duration{1e-9}}.run();
    CHECK(transfer_pairs[0].offload_start == 0_ms);
    CHECK(transfer_pairs[0].reload_start == 8_ms);
    CHECK(transfer_pairs[1].offload_start == 6_ms);
    // The third offload couldn't end before 18, so the second stash comes back at once.
    CHECK(transfer_pairs[1].reload_start == 17_ms);
    CHECK(transfer_pairs[2].offload_start == 19_ms);
    CHECK(transfer_pairs[2].reload_start == 28_ms);
}

TEST_CASE("on half duplex an offload makes way for the reload of a neighbour") {
    auto p = to_problem(make_problem(graph<2, 3>{}, unit_memory{}));
    p.change_stages([&](auto& c) { c.transfer = transfer_times{2_ms, 2_ms}; });
    p.transfer.share_link(rank{0}, rank{1});
    const std::vector<rank> members{rank{0}, rank{1}};
    const auto run = [&](duplex_kind duplex) {
        p.transfer.duplex = duplex;
        std::vector<transfer_pair> transfer_pairs{some_trip(0, 0, 0, 10, 2, 2), some_trip(1, 1, 7, 20, 2, 2)};
        detail::transfers_on_demand<any_graph>{p, members, transfer_pairs, duration{1e-9}}.run();
        CHECK(transfer_pairs[0].is_in_time(duration{1e-9}));
        return transfer_pairs[1].offload_start;
    };
    CHECK(run(duplex_kind::full) == 7_ms);
    CHECK(run(duplex_kind::half) == 9_ms);
}

TEST_CASE("transfers fit around computations that stay where they are, for whatever links and engines") {
    constexpr std::uint64_t seed = 95;
    std::size_t placed[2] = {0, 0};
    std::uint64_t problems = 0;
    for (std::uint64_t i = 0; i < oracle::random_cases(400); ++i) {
        CAPTURE(seed);
        CAPTURE(i);
        oracle::random_numbers random{seed * 1'000'003 + i};
        const auto p = without_device_limits(
            oracle::make_random_problem(
                random, {.ranks = 8, .stages = 16, .microbatches = 32, .cells = 192, .offloading_percent = 100})
                .problem);
        if (!is_loop_placed(p.graph)) continue;
        ++problems;
        const auto computations = *simulate(p, *gis_builder{1}(p));
        cell_flags flags(p.graph.cells());
        for (auto& flag : flags)
            flag = random.chance(80) ? 1 : 0;
        const offload_placer<any_graph> placer{p, flags, computations};
        for (const bool in_slots : {true, false})
            for (const double round_trips : {1.0, 3.0}) {
                CAPTURE(in_slots);
                const auto transfers = placer.run({in_slots, round_trips});
                auto timed = computations;
                for (const auto& one : transfers) {
                    timed.operations.push_back(one);
                    CHECK(flags[one.op.stage.position() * p.graph.microbatches() + one.op.microbatch.position()] == 1);
                }
                timed = with_storage_of_transfers(p, timed);
                auto checked = p;
                if (in_slots)
                    for (auto& limit : checked.host_memory_limit)
                        limit = memory_size::unlimited();
                placed[in_slots ? 1 : 0] += transfers.size();
                CHECK(validate(checked, timed).empty());
                CHECK(oracle::judge(checked, timed).text() == "");
                const auto before = measure(checked, timed);
                postpone_reloads(checked, timed);
                CHECK(validate(checked, timed).empty());
                const auto after = measure(checked, timed);
                for (const rank r : p.graph.all_ranks())
                    CHECK(after.peak_memory[r] <= before.peak_memory[r] + 1e-9_gb);
                CHECK(after.objective == before.objective);
            }
    }
    CHECK(problems >= oracle::random_cases(100));
    CHECK(placed[0] >= oracle::random_cases(2000));
    CHECK(placed[1] >= oracle::random_cases(1000));
}

TEST_CASE("a reload that is put off stays before its gradient and what comes next on its engine") {
    auto p = to_problem(make_problem(graph<2, 4>{}, unit_memory{}));
    p.change_stages([&](auto& c) { c.transfer = transfer_times{1_ms, 1_ms}; });
    const auto at = [](const operation& op, double start, double length) {
        return timed_operation{op, duration{start}, duration{start + length}};
    };
    schedule s{p.graph, {}};
    const stage first{0};
    s.operations = {at(offload_of(first, microbatch{0}), 1, 1),      at(reload_of(first, microbatch{0}), 2, 1),
                    at(offload_of(first, microbatch{1}), 8, 1),      at(reload_of(first, microbatch{1}), 9, 1),
                    at(backward_input(first, microbatch{0}), 12, 1), at(backward_input(first, microbatch{1}), 14, 1)};
    postpone_reloads(p, s);
    for (const auto& [op, start, end] : s.operations) {
        if (op == reload_of(first, microbatch{0})) CHECK(start == 7_ms);
        if (op == reload_of(first, microbatch{1})) CHECK(start == 13_ms);
        if (op.kind == operation_kind::offload) CHECK((start == 1_ms || start == 8_ms));
    }
    p.transfer.engines = 2;
    postpone_reloads(p, s);
    for (const auto& [op, start, end] : s.operations)
        if (op == reload_of(first, microbatch{0})) CHECK(start == 11_ms);
    p.host_memory_limit[rank{0}] = 5_gb;
    s.operations[1] = at(reload_of(first, microbatch{0}), 2, 1);
    const auto before = s.operations;
    postpone_reloads(p, s);
    CHECK(std::is_permutation(before.begin(), before.end(), s.operations.begin()));
}
