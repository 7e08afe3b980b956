#include "optpipe/online/room_for_plans.hpp"

#include "optpipe/core/random.hpp"
#include "optpipe/pipeline/make_problem.hpp"
#include "optpipe/program/lower.hpp"
#include "optpipe/schedule/builders/gpipe.hpp"
#include "optpipe/schedule/pair.hpp"
#include "optpipe/schedule/time/simulate.hpp"
#include "oracle/random_cases.hpp"
#include "oracle/random_pairs.hpp"
#include "oracle/random_schedule.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace {

using namespace optpipe;

lowering_options random_lowering(random_numbers& random, bool equal_boundaries) {
    lowering_options how{.bytes_per_unit = 1000.0,
                         .alignment = std::size_t{1} << random.below(9),
                         .message_bytes = 1 + random.below(5000),
                         .lanes = static_cast<message_lanes>(random.below(3))};
    if (!equal_boundaries) how.boundary_bytes.assign(1, 1 + random.below(5000));
    if (random.below(2) == 0) how.placement = part_placement::contiguous;
    if (random.below(2) == 0) how.receives = receive_issue::when_due;
    return how;
}
bool holds(const execution::arena_sizes& room, const execution::arena_sizes& needed) {
    return largest(room, needed) == room;
}

} // namespace

TEST_CASE("the arenas hold every plan of a problem, however little sense is in it") {
    const auto cases = oracle::random_cases(3000);
    std::size_t tried = 0;
    for (std::uint64_t seed = 0; seed < cases; ++seed) {
        CAPTURE(seed);
        random_numbers random{seed};
        const auto given = oracle::make_random_problem(
            random, {.ranks = 3, .stages = 6, .microbatches = 6, .cells = 16, .storage_percent = 40});
        const auto& p = given.problem;
        const auto how = random_lowering(random, p.graph.stages() > 2);
        const auto programs = lower(p, oracle::random_schedule(random, given), how);
        if (!programs) continue;
        ++tried;
        for (const auto& program : *programs)
            CHECK(holds(room_for_plans(p, program.self, how), execution::sizes_of(program)));
    }
    CHECK(tried > cases / 2);
}

TEST_CASE("the arenas hold the microbatches of a step that are all larger than usual") {
    const auto cases = oracle::random_cases(300);
    std::size_t larger = 0;
    for (std::uint64_t seed = 0; seed < cases; ++seed) {
        CAPTURE(seed);
        random_numbers random{seed};
        auto given = oracle::make_random_problem(
            random, {.ranks = 3, .stages = 6, .microbatches = 6, .cells = 16, .storage_percent = 40});
        auto& p = given.problem;
        const auto how = random_lowering(random, true);
        const auto usual = room_for_plans(p, rank{0}, how);
        const std::vector<cost_factors> factors(p.graph.microbatches(), equal_factors(1.0 + 2.0 * random.share()));
        p.microbatches.set_factors(factors);
        for (auto* const limits : {&p.memory_limit, &p.host_memory_limit})
            std::fill(limits->begin(), limits->end(), memory_size::unlimited());
        const auto programs = lower(p, oracle::random_schedule(random, given), how);
        if (!programs) continue;
        for (const auto& program : *programs)
            CHECK(holds(room_for_plans(p, program.self, how), execution::sizes_of(program)));
        larger += holds(usual, room_for_plans(p, rank{0}, how)) ? 0 : 1;
    }
    if (cases < 300) return;
    CHECK(larger > cases / 2);
}

TEST_CASE("the arenas for the longest microbatches hold every draw of shorter ones") {
    const auto cases = oracle::random_cases(600);
    std::size_t tried = 0;
    for (std::uint64_t seed = 0; seed < cases; ++seed) {
        CAPTURE(seed);
        random_numbers random{seed};
        auto given = oracle::make_random_problem(
            random, {.ranks = 3, .stages = 6, .microbatches = 6, .cells = 24, .storage_percent = 40});
        auto& p = given.problem;
        const auto how = random_lowering(random, true);
        for (auto* const limits : {&p.memory_limit, &p.host_memory_limit})
            std::fill(limits->begin(), limits->end(), memory_size::unlimited());
        constexpr double longest = 2.0;
        const std::size_t microbatches = p.graph.microbatches();
        p.microbatches.set_factors(std::vector<cost_factors>(microbatches, equal_factors(longest)));
        const auto longest_of_all = p;
        std::vector<cost_factors> drawn;
        for (std::size_t m = 0; m < microbatches; ++m)
            drawn.push_back(equal_factors(longest * (0.1 + 0.9 * random.share())));
        p.microbatches.set_factors(drawn);
        const auto programs = lower(p, oracle::random_schedule(random, given), how);
        if (!programs) continue;
        ++tried;
        for (const auto& program : *programs)
            CHECK(holds(room_for_plans(longest_of_all, program.self, how), execution::sizes_of(program)));
    }
    CHECK(tried > cases / 2);
}

TEST_CASE("the arenas hold every plan with pairs") {
    const auto cases = oracle::random_cases(300);
    std::size_t paired = 0;
    for (std::uint64_t seed = 0; seed < cases; ++seed) {
        CAPTURE(seed);
        random_numbers random{seed};
        const auto given = oracle::make_random_problem(
            random, {.ranks = 2, .stages = 4, .microbatches = 6, .cells = 16, .storage_percent = 40});
        const auto single = oracle::random_schedule(random, given);
        const auto p = oracle::with_random_pairs(random, given.problem);
        const auto how = random_lowering(random, p.graph.stages() > 2);
        const auto s = oracle::with_all_pairs(p, single);
        const auto programs = lower(p, s, how);
        if (!programs) continue;
        paired += has_pairs(s.operations) ? 1 : 0;
        for (const auto& program : *programs)
            CHECK(holds(room_for_plans(p, program.self, how), execution::sizes_of(program)));
    }
    CHECK(paired > cases / 8);
}

TEST_CASE("the arenas hold every plan of a graph, of slices and of groups") {
    const auto cases = oracle::random_cases(600);
    std::size_t tried = 0;
    std::size_t slices = 0;
    std::size_t groups = 0;
    std::size_t holding = 0;
    for (std::uint64_t seed = 0; seed < cases; ++seed) {
        CAPTURE(seed);
        random_numbers random{seed};
        auto given = oracle::make_random_problem(
            random,
            {.ranks = 3, .stages = 6, .microbatches = 6, .cells = 24, .storage_percent = 40, .graph_percent = 100});
        auto& p = given.problem;
        if (seed % 2 == 0) std::fill(p.memory_limit.begin(), p.memory_limit.end(), memory_size::unlimited());
        auto how = random_lowering(random, p.graph.stages() > 2);
        how.partial_bytes = 1 + random.below(3000);
        const auto programs = lower(p, oracle::random_schedule(random, given), how);
        if (!programs) continue;
        ++tried;
        slices += p.microbatches.has_slices() ? 1 : 0;
        groups += p.groups.empty() ? 0 : 1;
        bool holds_memory = false;
        for (const stage s : p.graph.all_stages())
            p.graph.for_each_edge_into(s, [&](const edge& e) { holds_memory |= e.held > memory_size{}; });
        holding += holds_memory ? 1 : 0;
        for (const auto& program : *programs)
            CHECK(holds(room_for_plans(p, program.self, how), execution::sizes_of(program)));
    }
    CHECK(tried > cases / 2);
    CHECK(slices > cases / 20);
    CHECK(groups > cases / 20);
    CHECK(holding > cases / 20);
}

TEST_CASE("a plan may exceed the memory limit by the tolerance, and has room") {
    const duration unit{1};
    const stage_costs costs{unit, unit, unit, memory_size{1.0000004}, memory_size{0.5}, {}};
    const auto p = to_problem(make_problem(graph<2, 3>{}, uniform_memory{costs}, memory_size{3.0}));
    const lowering_options how{.bytes_per_unit = 1e9, .alignment = 1, .message_bytes = 24};
    const auto programs = lower(p, *simulate(p, gpipe(p.graph)), how);
    REQUIRE(programs);
    const auto needed = execution::sizes_of((*programs)[rank{0}]);
    CHECK(needed.device > 3'000'000'024);
    CHECK(holds(room_for_plans(p, rank{0}, how), needed));
}

TEST_CASE("the host has room for what is offloaded, and for nothing else") {
    const duration unit{1};
    const stage_costs costs{unit, unit, unit, memory_size{1}, memory_size{0.5}, {}};
    const auto p = to_problem(make_problem(graph<2, 4>{}, uniform_memory{costs}, memory_size::unlimited()));
    const lowering_options how{.bytes_per_unit = 64.0, .alignment = 1, .message_bytes = 24};
    CHECK(room_for_plans(p, rank{0}, how).host < 64);
}

TEST_CASE("no message buffer is spare where every microbatch waits") {
    // GPipe's forwards reach a last stage that begins late: all activations wait there.
    const duration unit{1};
    const stage_costs costs{unit, unit, unit, memory_size{1}, memory_size{0.5}, {}};
    auto p = to_problem(make_problem(graph<2, 5>{}, uniform_memory{costs}, memory_size::unlimited()));
    const lowering_options how{.bytes_per_unit = 64.0, .alignment = 1, .message_bytes = 24};
    auto late = *simulate(p, gpipe(p.graph));
    for (auto& timed : late.operations)
        if (timed.op.stage == stage{1} || timed.op.kind != operation_kind::forward) {
            timed.start += duration{10};
            timed.end += duration{10};
        }
    const auto programs = lower(p, late, how);
    REQUIRE(programs);
    const rank last{1};
    CHECK((*programs)[last].message_bytes + how.message_bytes >= room_for_plans(p, last, how).message);
    CHECK(room_for_plans(p, last, how).message == 6 * how.message_bytes);
}

TEST_CASE("messages are as large as the stage that sends forward makes them") {
    const duration unit{1};
    const stage_costs costs{unit, unit, unit, memory_size{1}, memory_size{0.5}, {}};
    auto p = to_problem(make_problem(graph<2, 4>{}, uniform_memory{costs}, memory_size::unlimited()));
    cost_factors large_messages;
    large_messages.message = 4.0;
    cost_factors long_forwards;
    long_forwards.forward = 6.0;
    std::vector<cost_factors> factors(p.graph.microbatches(), large_messages); // of the first stage
    factors.resize(2 * p.graph.microbatches(), long_forwards);
    p.microbatches.set_factors_by_stage(factors, p.graph.microbatches());
    const lowering_options how{.bytes_per_unit = 64.0, .alignment = 1, .message_bytes = 24};
    const auto programs = lower(p, *simulate(p, gpipe(p.graph)), how);
    REQUIRE(programs);
    for (const auto& program : *programs)
        CHECK(holds(room_for_plans(p, program.self, how), execution::sizes_of(program)));
}

TEST_CASE("limits bound what stashes take, and without them all of them find room") {
    const duration unit{1};
    const stage_costs costs{unit, unit, unit, memory_size{1}, memory_size{0.5}, {}};
    const lowering_options how{.bytes_per_unit = 64.0, .alignment = 1};
    const auto room = [&](memory_size limit) {
        return room_for_plans(to_problem(make_problem(graph<2, 8>{}, uniform_memory{costs}, limit)), rank{0}, how);
    };
    const auto rounding = room(memory_size::unlimited()).device - 8 * 64;
    CHECK(room(memory_size{3}).device == 3 * 64 + rounding);
    CHECK(rounding == 8 * buffer_roles);
}
