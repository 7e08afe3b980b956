// Programs of problems that aren't plain: graphs, stages without gradients, groups, slices, and microbatches that
// differ.
#include "optpipe/program/check.hpp"
#include "optpipe/program/lower.hpp"
#include "optpipe/program/planned_message.hpp"
#include "optpipe/schedule/construct/forward_only.hpp"
#include "optpipe/schedule/construct/within_memory.hpp"
#include "optpipe/schedule/time/measure.hpp"
#include "optpipe/schedule/time/simulate.hpp"
#include "optpipe/testing/random_problem.hpp"
#include "oracle/random_cases.hpp"
#include "oracle/random_schedule.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <set>
#include <string>
#include <vector>

namespace {

using namespace optpipe;

constexpr std::uint64_t first_seed = 5800;
/// Memory of random problems is a multiple of an eighth.
constexpr double bytes_per_unit = 8.0;

lowering_options options_for(std::uint64_t seed) {
    lowering_options how{.bytes_per_unit = bytes_per_unit, .alignment = 1, .message_bytes = 24};
    how.lanes = static_cast<message_lanes>(seed % 3);
    how.partial_bytes = 16;
    how.update = seed % 2 == 0;
    how.reduce = seed % 4 == 0;
    return how;
}

/// Calls `visit(problem, schedule, seed)` for random problems of format 3.
template <class Visit> void for_random_graphs(std::size_t problems, Visit visit) {
    for (std::uint64_t seed = first_seed; seed < first_seed + oracle::random_cases(problems); ++seed) {
        CAPTURE(seed);
        random_numbers random{seed};
        const auto given = testing::make_random_problem(
            random,
            {.ranks = 4, .stages = 8, .microbatches = 6, .cells = 30, .storage_percent = 40, .graph_percent = 100});
        visit(given.problem, oracle::random_schedule(random, given), seed);
    }
}

std::string first_of(const std::vector<violation>& found) { return found.empty() ? "" : found.front().text(); }

/// Encoder 0 feeds stages 1 and 2 on its own rank and on another; what waits for stage 3 is held.
problem fan_out(memory_size held) {
    using namespace literals;
    const stage_costs c{2_ms, 2_ms, 1_ms, 1_gb};
    per_stage<rank> ranks(4);
    ranks[stage{1}] = rank{0};
    ranks[stage{2}] = rank{1};
    ranks[stage{3}] = rank{1};
    const edges::any feeds{4, {{stage{0}, stage{1}}, {stage{0}, stage{2}}, {stage{0}, stage{3}, 1.0, held}}};
    return problem{any_graph{2, 1, placement::map<>{ranks}, feeds}, per_stage<stage_costs>(4, c)};
}

std::multiset<std::string> messages_of(const rank_program& p) {
    std::multiset<std::string> names;
    for (const auto& part : p.parts)
        names.insert(to_string(label_of(part)));
    return names;
}

TEST_CASE("programs of random graphs pass the check, nearly always in exactly the memory of the plan") {
    // Values are never split, and now and then no packing leaves no gap.
    std::size_t ranks = 0;
    std::size_t larger = 0;
    for_random_graphs(300, [&](const problem& p, const schedule& s, std::uint64_t seed) {
        const auto planned = measure(p, s);
        const auto programs = lower(p, s, options_for(seed));
        if (!programs) {
            ++larger;
            CHECK(programs.why().reason == refusal_reason::over_memory);
            return;
        }
        CHECK(first_of(check_programs(*programs)) == "");
        for (const auto& each : *programs) {
            const auto peak =
                static_cast<std::size_t>(std::lround(bytes_per_unit * planned.peak_memory[each.self].value()));
            CHECK(each.device_bytes >= peak);
            ++ranks;
            larger += each.device_bytes > peak ? 1 : 0;
        }
    });
    MESSAGE(larger << " of " << ranks << " ranks need more than the peak of the plan");
    CHECK(100 * larger <= ranks);
}

TEST_CASE("programs of forwards alone pass the check, in exactly the memory of keys, values and edges") {
    std::size_t lowered = 0;
    for_random_graphs(100, [&](const problem& p, const schedule&, std::uint64_t seed) {
        const auto alone = forward_problem(p);
        const auto s = simulate(alone, one_at_a_time(alone));
        if (!s) return; // keys and values of a whole sequence need not fit
        lowering_options how{.bytes_per_unit = bytes_per_unit, .alignment = 1, .message_bytes = 24};
        how.lanes = static_cast<message_lanes>(seed % 3);
        how.forward_only = true;
        const auto programs = lower(p, *s, how);
        REQUIRE(programs);
        CHECK(first_of(check_programs(*programs)) == "");
        const auto planned = measure(alone, *s);
        for (const auto& each : *programs)
            CHECK(each.device_bytes ==
                  static_cast<std::size_t>(std::lround(bytes_per_unit * planned.peak_memory[each.self].value())));
        ++lowered;
    });
    CHECK(lowered > oracle::random_cases(50));
}

TEST_CASE("an activation is sent once to each rank, and what an edge holds by itself") {
    const auto lowered = [](memory_size held) {
        const auto p = fan_out(held);
        const auto s = simulate(p, one_at_a_time(p));
        REQUIRE(s);
        return *lower(p, *s, {.bytes_per_unit = 16, .alignment = 1, .message_bytes = 8});
    };
    const auto shared = lowered(memory_size{});
    CHECK(messages_of(shared[rank{0}]).size() == 3); // one activation, two gradients
    CHECK(messages_of(shared[rank{0}]).count("send of 0F0 for stage 2 to rank 1") == 1);
    const auto held = lowered(memory_size{0.5});
    CHECK(messages_of(held[rank{0}]).size() == 4);
    CHECK(held[rank{0}].device_bytes == shared[rank{0}].device_bytes + 8);
    CHECK(held[rank{1}].device_bytes >= shared[rank{1}].device_bytes);
}

TEST_CASE("a message takes the time of its edge, and a result for a group its delay") {
    const stage_costs c{duration{2}, duration{2}, duration{1}, memory_size{1}};
    const edges::any feeds{3, {{stage{0}, stage{1}, 2.0}, {stage{0}, stage{2}}}};
    problem p{any_graph{3, 1, to_any_graph(graph<3, 1>{}).placement(), feeds}, per_stage<stage_costs>(3, c)};
    p.p2p = hop_times<>{duration{0.5}};
    p.groups.add(std::vector{stage{1}, stage{2}}, duration{0.25}, 3);
    p.microbatches.set_factors(std::vector<cost_factors>{{.message = 3.0}});
    const auto time_of = [&](const operation& op, value_kind value, stage consumer) {
        return planned_message_time(p, {task_label::task_kind::send, op, {}, value, consumer}).value();
    };
    const microbatch m{0};
    CHECK(time_of(forward(stage{0}, m), value_kind::boundary, adjacent_stage) == 3.0);
    CHECK(time_of(forward(stage{0}, m), value_kind::boundary, stage{2}) == 1.5);
    CHECK(time_of(backward_input(stage{1}, m), value_kind::boundary, adjacent_stage) == 3.0);
    CHECK(time_of(backward(stage{2}, m), value_kind::boundary, stage{0}) == 1.5);
    CHECK(time_of(forward(stage{1}, m), value_kind::partial, adjacent_stage) == 0.25);
}

TEST_CASE("the check refuses links that lead elsewhere") {
    std::size_t changed = 0;
    for_random_graphs(100, [&](const problem& p, const schedule& s, std::uint64_t seed) {
        const auto lowered = lower(p, s, options_for(seed));
        if (!lowered) return;
        auto programs = *lowered;
        for (auto& each : programs)
            if (!each.links.empty()) {
                ++changed;
                each.links.front().buffer = buffer_id{(each.links.front().buffer.position() + 1) % each.buffers.size()};
                if (each.buffers.size() == 1) each.links.clear();
                CHECK(first_of(check_programs(programs)) != "");
                break;
            }
    });
    CHECK(changed > oracle::random_cases(50));
}

TEST_CASE("the check refuses programs of another shape") {
    for_random_graphs(40, [&](const problem& p, const schedule& s, std::uint64_t seed) {
        const auto lowered = lower(p, s, options_for(seed));
        if (!lowered) return;
        auto programs = *lowered;
        const bool is_linked = std::any_of(programs.begin(), programs.end(), [](const auto& each) {
            return std::any_of(each.links.begin(), each.links.end(),
                               [](const buffer_link& l) { return l.value == value_kind::boundary; });
        });
        if (!is_linked) return;
        for (auto& each : programs)
            each.shape.feeds = edges::any{p.graph.stages(), {}};
        CHECK(first_of(check_programs(programs)) != "");
    });
}

} // namespace
