// Data parallelism in addition to the pipeline: reductions come right behind the last weight gradient of their stage,
// on a lane of their own, and before its update. The checks find faults in them.
#include "optpipe/core/random.hpp"
#include "optpipe/pipeline/placement.hpp"
#include "optpipe/program/check.hpp"
#include "optpipe/program/lower.hpp"
#include "optpipe/program/write_program.hpp"
#include "optpipe/schedule/builders/all.hpp"
#include "optpipe/schedule/construct/forward_only.hpp"
#include "optpipe/schedule/time/evaluate.hpp"
#include "optpipe/testing/random_problem.hpp"
#include "oracle/random_cases.hpp"
#include "schedule/quick_builders.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace {

using optpipe::instruction;
using optpipe::instruction_kind;
using optpipe::lane_kind;
using optpipe::operation_kind;
using optpipe::rank;
using optpipe::rank_program;
using optpipe::stage;

constexpr std::uint64_t first_seed = 8300;
constexpr optpipe::testing::problem_ranges ranges{
    .ranks = 4, .stages = 8, .microbatches = 6, .cells = 30, .offloading_percent = 50};

std::string all_of(const std::vector<optpipe::violation>& found) {
    std::string text;
    for (const auto& v : found)
        text += v.text() + "\n";
    return text;
}
std::vector<instruction>::const_iterator find(const rank_program& p, instruction_kind kind, stage s) {
    return std::find_if(p.instructions.begin(), p.instructions.end(),
                        [&](const instruction& i) { return i.kind == kind && i.op.stage == s; });
}
bool adds_weights(const instruction& i) {
    return i.kind == instruction_kind::compute &&
           (i.op.kind == operation_kind::backward_weight || i.op.kind == operation_kind::backward);
}

/// Checks one stage's reduction in the program of its rank.
void check_reduction(const rank_program& p, stage s) {
    CAPTURE(to_string(forward(s, optpipe::microbatch{0})));
    const auto reduction = find(p, instruction_kind::reduce, s);
    REQUIRE(reduction != p.instructions.end());
    CHECK(p.lanes[reduction->lane] == lane_kind::reduce);
    CHECK(reduction->buffers == optpipe::no_buffers);
    // Issued right behind the last weight gradient; that is its only wait.
    REQUIRE(reduction != p.instructions.begin());
    const auto& last = *(reduction - 1);
    CHECK(adds_weights(last));
    CHECK(last.op.stage == s);
    CHECK(std::none_of(reduction, p.instructions.end(),
                       [&](const instruction& i) { return adds_weights(i) && i.op.stage == s; }));
    REQUIRE(reduction->waits == 1);
    CHECK(p.waits[reduction->first_wait] == last.records);
    // The update of its stage, and only that, waits for it.
    const auto update = find(p, instruction_kind::update, s);
    REQUIRE(update != p.instructions.end());
    CHECK(update > reduction);
    REQUIRE(update->waits == 1);
    CHECK(p.waits[update->first_wait] == reduction->records);
    CHECK(std::count(p.waits.begin(), p.waits.end(), reduction->records) == 1);
}

TEST_CASE("each stage is reduced as soon as its last weight gradient is done") {
    std::size_t overlapped = 0;
    for (std::uint64_t seed = first_seed; seed < first_seed + oracle::random_cases(15); ++seed) {
        CAPTURE(seed);
        optpipe::random_numbers random{seed};
        const auto p = optpipe::testing::make_random_problem(random, ranges).problem;
        for_each_quick_builder([&](const auto& build) {
            const auto s = build_schedule(p, build);
            if (!s) return;
            const auto programs = lower(p, *s,
                                        {.bytes_per_unit = 100.0,
                                         .message_bytes = 24,
                                         .lanes = static_cast<optpipe::message_lanes>(seed % 3),
                                         .update = true,
                                         .reduce = true});
            if (!programs) return;
            CHECK(all_of(check_programs(*programs)) == "");
            for (const stage at : p.graph.all_stages()) {
                const auto& mine = (*programs)[p.rank_of(at)];
                check_reduction(mine, at);
                const auto reduction = find(mine, instruction_kind::reduce, at);
                overlapped += std::any_of(reduction, mine.instructions.end(),
                                          [](const instruction& i) { return i.kind == instruction_kind::compute; });
            }
        });
    }
    MESSAGE(overlapped << " reductions with operations of their rank left");
    CHECK(overlapped > oracle::random_cases(40));
}

/// Two ranks, two stages on each.
optpipe::problem two_by_two() {
    optpipe::stage_costs each;
    each.forward = each.backward_input = each.backward_weight = optpipe::duration{1.0};
    each.activation = optpipe::memory_size{1.0};
    return {to_any_graph(optpipe::graph<2, 2, optpipe::placement::loop<2>>{}),
            optpipe::per_stage<optpipe::stage_costs>(4, each)};
}
optpipe::per_rank<rank_program> small_programs(bool update = true) {
    const auto p = two_by_two();
    return *lower(p, *build_schedule(p, optpipe::interleaved), {.message_bytes = 8, .update = update, .reduce = true});
}

TEST_CASE("reductions without updates, and updates without reductions") {
    CHECK(all_of(check_programs(small_programs(false))) == "");
    const auto p = two_by_two();
    const auto programs = *lower(p, *build_schedule(p, optpipe::interleaved), {.update = true});
    for (const auto& each : programs)
        CHECK(std::find(each.lanes.begin(), each.lanes.end(), lane_kind::reduce) == each.lanes.end());
}

TEST_CASE("what is wrong with reductions is found") {
    const auto fault = [&](const auto& change) {
        auto programs = small_programs();
        auto& p = programs[rank{0}];
        const auto at = find(p, instruction_kind::reduce, stage{2}) - p.instructions.cbegin();
        change(p, p.instructions[static_cast<std::size_t>(at)]);
        return all_of(check_programs(programs));
    };
    CHECK(fault([](auto&, auto&) {}) == "");
    CHECK(fault([](auto&, auto& i) { i.waits = 0; }).find("nothing makes it wait") != std::string::npos);
    CHECK(fault([](auto& p, auto&) {
              for (auto& i : p.instructions)
                  if (i.kind == instruction_kind::update && i.op.stage == stage{2}) i.waits = 0;
          }).find("nothing makes it wait") != std::string::npos);
    CHECK(fault([](auto&, auto& i) { i.lane = 0; }).find("reduction of stage 2 is on the lane 'compute'") !=
          std::string::npos);
    CHECK(fault([](auto&, auto& i) { i.op.stage = stage{0}; }).find("appears twice") != std::string::npos);
    CHECK(fault([](auto&, auto& i) { i.op.stage = stage{1}; }).find("is of a stage that rank 0 has") !=
          std::string::npos);
    CHECK(fault([](auto& p, auto& i) {
              p.lanes.push_back(lane_kind::copy);
              i = {.kind = instruction_kind::copy,
                   .lane = static_cast<std::uint8_t>(p.lanes.size() - 1),
                   .op = offload_of(stage{2}, optpipe::microbatch{0}),
                   .records = i.records};
          }).find("reductions: some stages have one, others don't") != std::string::npos);
}

TEST_CASE("forwards alone leave nothing to reduce") {
    const auto p = two_by_two();
    auto programs = small_programs();
    for (auto& each : programs)
        each.forward_only = true;
    CHECK(all_of(check_programs(programs)).find("reductions: forwards alone leave nothing to reduce") !=
          std::string::npos);
}

} // namespace
