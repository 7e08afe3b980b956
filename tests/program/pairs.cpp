// Programs of schedules with pairs.
#include "optpipe/io/write_programs.hpp"
#include "optpipe/program/check.hpp"
#include "optpipe/program/issue_order.hpp"
#include "optpipe/program/lower.hpp"
#include "optpipe/program/write_program.hpp"
#include "optpipe/schedule/pair.hpp"
#include "optpipe/schedule/time/measure.hpp"
#include "optpipe/schedule/time/simulate.hpp"
#include "optpipe/testing/random_problem.hpp"
#include "oracle/random_cases.hpp"
#include "oracle/random_pairs.hpp"
#include "oracle/random_schedule.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <sstream>
#include <string>
#include <vector>

namespace {

using namespace optpipe;

constexpr std::uint64_t first_seed = 6900;
/// Memory of random problems is a multiple of an eighth.
constexpr double bytes_per_unit = 8.0;

std::string first_of(const std::vector<violation>& found) { return found.empty() ? "" : found.front().text(); }

lowering_options options_for(std::uint64_t seed) {
    lowering_options how{.bytes_per_unit = bytes_per_unit, .alignment = 1, .message_bytes = 24, .partial_bytes = 16};
    how.lanes = static_cast<message_lanes>(seed % 3);
    how.update = seed % 2 == 0;
    how.reduce = seed % 4 == 0;
    return how;
}

/// Two ranks with a stage each. The pair of stage 0 has memory of its own.
problem two_ranks() {
    const stage_costs costs{.forward = duration{2.0},
                            .backward_input = duration{2.0},
                            .backward_weight = duration{1.0},
                            .activation = memory_size{1.0},
                            .weight_stash = memory_size{0.5}};
    per_stage<rank> ranks(2);
    ranks[stage{1}] = rank{1};
    problem p{any_graph{2, 3, placement::map<>{ranks}}, per_stage<stage_costs>(2, costs)};
    p.overlaps.add({stage{0}, stage{0}, overlap_kind::backward, duration{4.0}, memory_size{0.25}});
    p.overlaps.add({stage{1}, stage{1}, overlap_kind::backward_input, duration{3.0}, {}});
    return p;
}
/// Rank 0 runs a pair of F and B, rank 1 one of F and I.
per_rank<rank_program> two_pairs() {
    const auto p = two_ranks();
    order o{p.graph, {}};
    std::istringstream words{"0F0 0F1 1F0 (1F1;1I0)OVERLAP_F_B 1W0 (0F2;0B0)OVERLAP_F_B 1I1 1W1 1F2 1B2 0B1 0B2"};
    for (std::string word; words >> word;)
        if (const auto pair = parse_pair(word)) {
            o.operations.push_back(pair->forward);
            o.operations.push_back(pair->backward);
        } else {
            o.operations.push_back(*parse_operation(word));
        }
    const auto s = simulate(p, o);
    REQUIRE_MESSAGE(s, describe(s.why()));
    return *lower(p, *s, {.bytes_per_unit = 8, .alignment = 1, .message_bytes = 16});
}
instruction& pair_in(rank_program& p) {
    return *std::find_if(p.instructions.begin(), p.instructions.end(), [](const auto& i) { return i.is_pair(); });
}
/// The first fault that the check finds after `change(program of rank 0, its pair)`.
template <class Change> std::string fault_after(const Change& change) {
    auto programs = two_pairs();
    REQUIRE(first_of(check_programs(programs)) == "");
    auto& mine = programs[rank{0}];
    change(mine, pair_in(mine));
    return first_of(check_programs(programs));
}

} // namespace

TEST_CASE("programs with pairs pass the check, nearly always in exactly the memory of the plan") {
    std::size_t pairs = 0;
    std::size_t ranks = 0;
    std::size_t larger = 0;
    for (std::uint64_t seed = first_seed; seed < first_seed + oracle::random_cases(300); ++seed) {
        CAPTURE(seed);
        random_numbers random{seed};
        const testing::problem_ranges ranges{.ranks = 4,
                                             .stages = 8,
                                             .microbatches = 6,
                                             .cells = 30,
                                             .storage_percent = 40,
                                             .graph_percent = seed % 2 == 0 ? 100U : 0U};
        const auto p = oracle::with_random_pairs(random, testing::make_random_problem(random, ranges).problem);
        const auto drawn = simulate(p, oracle::random_order(random, p));
        if (!drawn) continue; // over a host limit
        const auto s = oracle::with_all_pairs(p, *drawn);
        const auto programs = lower(p, s, options_for(seed));
        if (!programs) {
            ++larger;
            CHECK(programs.why().reason == refusal_reason::over_memory);
            continue;
        }
        CHECK(first_of(check_programs(*programs)) == "");
        const auto planned = measure(p, s);
        std::size_t lowered = 0;
        for (const auto& each : *programs) {
            lowered += each.pairs.size();
            const auto peak =
                static_cast<std::size_t>(std::lround(bytes_per_unit * planned.peak_memory[each.self].value()));
            CHECK(each.device_bytes >= peak);
            ++ranks;
            larger += each.device_bytes > peak ? 1 : 0;
        }
        std::size_t planned_pairs = 0;
        for_each_pair(s, [&](const auto&, const auto&) { ++planned_pairs; });
        CHECK(lowered == planned_pairs);
        pairs += lowered;
    }
    MESSAGE(pairs << " pairs; " << larger << " of " << ranks << " ranks need more than the peak of the plan");
    CHECK(pairs > oracle::random_cases(200));
    CHECK(100 * larger <= ranks);
}

TEST_CASE("a pair is one instruction, which names both of its parts") {
    const auto programs = two_pairs();
    std::ostringstream text;
    write_program(text, programs[rank{1}]);
    CHECK(text.str().find("[compute] wait m2, (1F1;1I0)OVERLAP_F_B, record m3\n") != std::string::npos);
    CHECK(programs_to_json("two ranks", programs, 8)
              .find(R"("op": "(0F2;0B0)OVERLAP_F_B", "forward": { "op": "0F2", )"
                    R"("buffers": { "output": 9, "kept": 7, "freed": 8 })") != std::string::npos);
    CHECK(programs_to_json("two ranks", programs, 8)
              .find(R"("backward": { "op": "0B0", "buffers": { "input": 6, "kept": 0, "freed": 1 })") !=
          std::string::npos);
    const auto tasks = issue_order(programs[rank{0}]);
    const auto pair = std::find_if(tasks.begin(), tasks.end(),
                                   [](const auto& task) { return to_string(task.what) == "(0F2;0B0)OVERLAP_F_B"; });
    REQUIRE(pair != tasks.end());
    CHECK(pair->after.size() == 1); // the gradient; what it sends, others wait for
}

TEST_CASE("the check refuses pairs that aren't pairs") {
    CHECK(fault_after([](auto& p, auto& pair) { pair.pair = static_cast<std::uint32_t>(p.pairs.size()); }) ==
          "rank 0, instruction 5: is a pair whose backward doesn't exist");
    CHECK(fault_after([](auto&, auto& pair) { pair.pair = no_pair; }) ==
          "rank 0, instruction 5: 0F2 is a part of a pair without the other part");
    CHECK(fault_after([](auto& p, auto&) { p.pairs[0].backward.op.is_paired = false; }) ==
          "rank 0, instruction 5: (0F2;0B0)OVERLAP_F_B is a part of a pair without the other part");
    CHECK(fault_after([](auto& p, auto&) { p.pairs[0].backward.op.microbatch = microbatch{1}; }) ==
          "rank 0, instruction 8: 0B1 appears twice");
    CHECK(fault_after([](auto& p, auto&) { p.pairs[0].backward.op.kind = operation_kind::backward_weight; }) ==
          "rank 0, instruction 5: is no pair of a forward and a backward");
    CHECK(fault_after([](auto& p, auto&) { p.pairs[0].backward.op.kind = operation_kind::backward_input; }) ==
          "stage 0, microbatch 0: needs one F, either one B or one I and one W, and OFFLOAD with RELOAD or neither");
    CHECK(fault_after([](auto& p, auto&) { p.pairs[0].backward.op.stage = stage{9}; }) ==
          "rank 0, instruction 5: is of an operation that doesn't exist");
    CHECK(fault_after([](auto& p, auto&) { p.pairs[0].backward.links = 0; }) ==
          "rank 0, instruction 5: (0F2;0B0)OVERLAP_F_B has an input too many or too few");
    CHECK(fault_after([](auto& p, auto&) { p.pairs[0].backward.first_link = 1000; }) ==
          "rank 0, instruction 5: has links that don't exist");
    CHECK(fault_after([](auto& p, auto&) { p.pairs[0].backward.set(buffer_role::kept, no_buffer); }) ==
          "rank 0, instruction 5: (0F2;0B0)OVERLAP_F_B has another stash than it was given");
    CHECK(fault_after([](auto& p, auto&) { p.pairs[0].memory = buffer_id{99}; }) ==
          "rank 0, instruction 5: has a buffer that doesn't exist");
    CHECK(fault_after([](auto& p, auto&) { ++p.buffers[p.pairs[0].memory.position()].last_use; }) ==
          "rank 0, instruction 5: (0F2;0B0)OVERLAP_F_B has memory for more than the pair");
    CHECK(fault_after([](auto&, auto& pair) { pair.waits = 0; }) ==
          "rank 0, instruction 5: (0F2;0B0)OVERLAP_F_B needs what receive of 1I0 from rank 1 (instruction 4) gives it "
          "or leaves free, but nothing makes it wait for that");
}

TEST_CASE("nothing that one part of a pair frees is given to the other") {
    CHECK(fault_after([](auto& p, auto& pair) {
              // The memory of the pair lies where its backward's stash does.
              const auto& stash = p.buffers[p.pairs[pair.pair].backward.buffer(buffer_role::kept).position()];
              const auto& memory = p.buffers[p.pairs[pair.pair].memory.position()];
              p.segments[memory.first_segment].offset = p.segments[stash.first_segment].offset;
          }) == "rank 0, instruction 5: (0F2;0B0)OVERLAP_F_B needs what (0F2;0B0)OVERLAP_F_B (instruction 5) gives it "
                "or leaves free, but nothing makes it wait for that");
}
