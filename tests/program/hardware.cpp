// Programs for devices have properties that threads don't need: alignment, receives that don't wait for long, and
// progress of lanes that share a queue.
#include "optpipe/program/check.hpp"
#include "optpipe/program/lower.hpp"
#include "optpipe/schedule/builders/all.hpp"
#include "optpipe/schedule/time/evaluate.hpp"
#include "optpipe/testing/random_problem.hpp"
#include "oracle/random_cases.hpp"
#include "schedule/quick_builders.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace {

using optpipe::message_lanes;
using optpipe::rank_program;
using optpipe::receive_issue;

constexpr std::uint64_t first_seed = 7300;
constexpr optpipe::testing::problem_ranges ranges{.ranks = 4, .stages = 8, .microbatches = 6, .cells = 30};

std::string all_of(const std::vector<optpipe::violation>& found) {
    std::string text;
    for (const auto& v : found)
        text += v.text() + "\n";
    return text;
}
template <class Visit> void for_random_schedules(std::size_t problems, Visit visit) {
    for (std::uint64_t seed = first_seed; seed < first_seed + problems; ++seed) {
        CAPTURE(seed);
        optpipe::random_numbers random{seed};
        const auto p = optpipe::testing::make_random_problem(random, ranges).problem;
        for_each_quick_builder([&](const auto& build) {
            const std::string name{build.name};
            CAPTURE(name);
            if (const auto s = build_schedule(p, build)) visit(p, *s);
        });
    }
}

TEST_CASE("whatever the sizes, every buffer begins where a kernel may read vectors") {
    std::size_t segments = 0;
    for_random_schedules(oracle::random_cases(20), [&](const optpipe::problem& p, const optpipe::schedule& s) {
        auto programs = lower(p, s, {.bytes_per_unit = 100.0, .message_bytes = 24});
        if (!programs) return;
        CHECK(all_of(check_programs(*programs)) == "");
        for (auto& each : *programs) {
            CHECK(each.alignment == 256);
            for (const auto& segment : each.segments)
                CHECK((segment.offset % 256 == 0 && segment.bytes % 256 == 0));
            segments += each.segments.size();
        }
    });
    CHECK(segments > oracle::random_cases(100));
}

TEST_CASE("a buffer that isn't aligned is found") {
    optpipe::random_numbers random{first_seed};
    const auto p = optpipe::testing::make_random_problem(random, ranges).problem;
    auto programs = *lower(p, *build_schedule(p, optpipe::adaptive), {.bytes_per_unit = 100.0});
    auto& first = programs[optpipe::rank{0}];
    REQUIRE(!first.segments.empty());
    first.alignment = 3;
    CHECK(all_of(check_programs(programs)).find("begins at no multiple of 3 bytes") != std::string::npos);
    first.alignment = 0;
    CHECK(all_of(check_programs(programs)) == "rank 0: has an alignment of 0 bytes\n");
}

/// The buffers on the host that reach over a multiple of `part`, or lie in several pieces.
std::size_t split_by(std::size_t part, const rank_program& p) {
    return static_cast<std::size_t>(std::count_if(p.buffers.begin(), p.buffers.end(), [&](const auto& b) {
        if (b.arena != optpipe::memory_arena::host || b.segments == 0) return false;
        const auto& first = p.segments[b.first_segment];
        return b.segments > 1 || first.offset / part != (first.offset + first.bytes - 1) / part;
    }));
}

TEST_CASE("no stash on the host lies in two parts of its memory") {
    constexpr std::size_t part = std::size_t{64} << 10U;
    std::size_t arenas_of_parts = 0;
    std::size_t split_otherwise = 0;
    for_random_schedules(oracle::random_cases(40), [&](const optpipe::problem& p, const optpipe::schedule& s) {
        optpipe::memory_size largest{1.0};
        for (const auto& each : p.costs)
            largest = std::max({largest, each.activation, each.weight_stash});
        // Without a limit, as the unused ends of parts add to the memory.
        auto roomy = p;
        for (const auto r : p.graph.all_ranks())
            roomy.host_memory_limit[r] = optpipe::memory_size::unlimited();
        optpipe::lowering_options how{.bytes_per_unit = 0.6 * static_cast<double>(part) / largest.value()};
        const auto plain = lower(roomy, s, how);
        how.host_part = part;
        const auto programs = lower(roomy, s, how);
        REQUIRE(programs.has_value() == plain.has_value());
        if (!programs) return;
        CHECK(all_of(check_programs(*programs)) == "");
        for (const auto& each : *programs) {
            CHECK(split_by(part, each) == 0);
            arenas_of_parts += each.host_bytes > part ? 1 : 0;
        }
        for (const auto& each : *plain)
            split_otherwise += split_by(part, each);
    });
    MESSAGE(arenas_of_parts << " arenas of several parts; " << split_otherwise << " stashes would be split");
    CHECK(arenas_of_parts > 0);
    CHECK(split_otherwise > 0);
}

TEST_CASE("a stash in two parts is found, and one that fits into none is refused") {
    optpipe::random_numbers random{first_seed};
    const auto p = optpipe::testing::make_random_problem(random, {.ranks = 2, .offloading_percent = 100}).problem;
    const auto s = build_schedule(p, optpipe::pipe_offload);
    REQUIRE(s);
    auto programs = *lower(p, *s, {.bytes_per_unit = 1e4});
    for (auto& each : programs)
        each.host_part = 256;
    CHECK(all_of(check_programs(programs)).find("reaches over the end of a part of 256 bytes") != std::string::npos);
    const auto refused = lower(p, *s, {.bytes_per_unit = 1e4, .host_part = 256});
    REQUIRE_FALSE(refused);
    CHECK(describe(refused.why()).find("larger than a part of host memory") != std::string::npos);
}

TEST_CASE("messages that can't be addressed are refused as stashes are") {
    const auto p = to_problem(make_problem(optpipe::graph<2, 4>{}, optpipe::unit_memory{}));
    const auto s = build_schedule(p, optpipe::one_forward_one_backward);
    REQUIRE(s);
    optpipe::lowering_options most, many, by_boundary;
    most.message_bytes = ~std::size_t{0};
    many.message_bytes = std::size_t{1} << 62U;
    by_boundary.boundary_bytes = {std::size_t{1} << 61U};
    for (const auto& how : {most, many, by_boundary}) {
        const auto refused = lower(p, *s, how);
        REQUIRE_FALSE(refused);
        CHECK(describe(refused.why()) ==
              "the stashes and messages of a step can't be addressed in bytes; bytes_per_unit may be too large");
    }
}

/// The sum over all receives of the planned time from the earliest begin of the receive to the send of its message.
optpipe::duration waits_of_receives(const optpipe::schedule& s, const optpipe::per_rank<rank_program>& programs) {
    const auto time_of = [&](const optpipe::operation& op) {
        return *std::find_if(s.operations.begin(), s.operations.end(),
                             [&](const auto& timed) { return timed.op == op; });
    };
    optpipe::duration sum{};
    for (const auto& each : programs) {
        // When each marker is recorded, and when each lane is free: computations as planned, receives with their
        // messages.
        std::vector<optpipe::duration> over(each.instructions.size());
        std::vector<std::size_t> recorded_by(each.markers);
        for (std::size_t i = 0; i < each.instructions.size(); ++i) {
            const auto& now = each.instructions[i];
            if (now.records != optpipe::no_marker) recorded_by[now.records.position()] = i;
            if (now.kind != optpipe::instruction_kind::exchange) {
                if (now.kind != optpipe::instruction_kind::update) over[i] = time_of(now.op).end;
                continue;
            }
            optpipe::duration begin{};
            for (std::size_t before = i; before-- > 0;)
                if (each.instructions[before].lane == now.lane) {
                    begin = over[before];
                    break;
                }
            for (std::size_t w = 0; w < now.waits; ++w)
                begin = std::max(begin, over[recorded_by[each.waits[now.first_wait + w].position()]]);
            for (std::size_t k = 0; k < now.parts; ++k) {
                const auto& part = each.parts[now.first_part + k];
                const auto sent = time_of(part.message).end;
                over[i] = std::max({over[i], begin, sent});
                if (part.side == optpipe::exchange_part::side_kind::receive)
                    sum += std::max(optpipe::duration{}, sent - begin);
            }
        }
    }
    return sum;
}

TEST_CASE("a receive that waits for the computation before its message holds the device for less time") {
    optpipe::duration early{};
    optpipe::duration due{};
    for_random_schedules(20, [&](const optpipe::problem& p, const optpipe::schedule& s) {
        for (const auto lanes : {message_lanes::separate, message_lanes::per_direction, message_lanes::single}) {
            const auto programs = lower(p, s, {.bytes_per_unit = 4.0, .lanes = lanes});
            const auto later =
                lower(p, s, {.bytes_per_unit = 4.0, .lanes = lanes, .receives = receive_issue::when_due});
            CHECK(programs.has_value() == later.has_value());
            if (!programs || !later) continue;
            CHECK(all_of(check_programs(*later)) == "");
            early += waits_of_receives(s, *programs);
            due += waits_of_receives(s, *later);
        }
    });
    MESSAGE("receives wait " << early.value() << " early, " << due.value() << " when due");
    CHECK(due < 0.5 * early);
}

TEST_CASE("programs that only end if lanes go on side by side are refused") {
    optpipe::stage_costs each;
    each.forward = each.backward_input = each.backward_weight = optpipe::duration{1.0};
    each.activation = each.weight_stash = optpipe::memory_size{1.0};
    const optpipe::problem p{to_any_graph(optpipe::graph<2, 2>{}), optpipe::per_stage<optpipe::stage_costs>(2, each)};
    auto programs = *lower(p, *build_schedule(p, optpipe::one_forward_one_backward), {.bytes_per_unit = 1.0});
    CHECK(all_of(check_programs(programs)) == "");
    // Rank 0 is told to receive the first gradient before it is told to send the activation that leads to it.
    auto& list = programs[optpipe::rank{0}].instructions;
    const auto is_receive = [&](const optpipe::instruction& i) {
        return i.kind == optpipe::instruction_kind::exchange &&
               programs[optpipe::rank{0}].parts[i.first_part].side == optpipe::exchange_part::side_kind::receive;
    };
    const auto receive = std::find_if(list.begin(), list.end(), is_receive);
    REQUIRE(receive != list.end());
    REQUIRE(receive->waits == 0);
    const auto position = static_cast<std::uint32_t>(receive - list.begin());
    std::rotate(list.begin(), receive, receive + 1);
    const auto moved = [&](std::uint32_t& at) { at = at == position ? 0 : at < position ? at + 1 : at; };
    for (auto& b : programs[optpipe::rank{0}].buffers) {
        moved(b.first_use);
        moved(b.last_use);
    }
    const auto found = check_programs(programs);
    REQUIRE(found.size() == 1);
    CHECK(found.front().place == "deadlock");
    CHECK(found.front().reason.find("where a rank runs its instructions in the order of issue only") == 0);
}

} // namespace
