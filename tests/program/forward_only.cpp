// Steps of forwards alone: the checks accept them, find their faults, and distinguish them from training steps.
#include "optpipe/schedule/construct/forward_only.hpp"

#include "optpipe/pipeline/placement.hpp"
#include "optpipe/program/check.hpp"
#include "optpipe/program/lower.hpp"
#include "optpipe/schedule/builders/one_forward_one_backward.hpp"
#include "optpipe/schedule/time/evaluate.hpp"
#include "optpipe/testing/random_problem.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace {

using optpipe::duration;
using optpipe::forward_schedule;
using optpipe::microbatch;
using optpipe::rank;
using optpipe::stage;

constexpr std::uint64_t first_seed = 8100;
constexpr optpipe::testing::problem_ranges ranges{
    .ranks = 4, .stages = 8, .microbatches = 6, .cells = 30, .offloading_percent = 50};

std::string all_of(const std::vector<optpipe::violation>& found) {
    std::string text;
    for (const auto& v : found)
        text += v.text() + "\n";
    return text;
}
/// A problem with one stage per rank; each forward takes 2, and the other costs don't matter.
optpipe::problem even_problem() {
    optpipe::stage_costs each;
    each.forward = duration{2.0};
    each.backward_input = each.backward_weight = duration{1.0};
    each.activation = optpipe::memory_size{1.0};
    return {to_any_graph(optpipe::graph<3, 4>{}), optpipe::per_stage<optpipe::stage_costs>(3, each)};
}

TEST_CASE("forwards alone are valid for every problem, and lowered they pass the checks") {
    for (std::uint64_t seed = first_seed; seed < first_seed + 40; ++seed) {
        CAPTURE(seed);
        optpipe::random_numbers random{seed};
        const auto p = optpipe::testing::make_random_problem(random, ranges).problem;
        const auto s = forward_schedule(p);
        CHECK(s.operations.size() == p.graph.cells());
        CHECK(all_of(validate_forward_only(p, s)) == "");
        const auto programs = lower(p, s,
                                    {.bytes_per_unit = 100.0,
                                     .message_bytes = 24,
                                     .lanes = static_cast<optpipe::message_lanes>(seed % 3),
                                     .forward_only = true});
        REQUIRE(programs);
        CHECK(all_of(check_programs(*programs)) == "");
        for (const auto& each : *programs) {
            CHECK(each.forward_only);
            CHECK(each.device_bytes == 0);
            CHECK(each.host_bytes == 0);
        }
    }
}

TEST_CASE("forwards follow each other without gaps: the pipeline fills once") {
    const auto p = even_problem();
    const auto s = forward_schedule(p);
    for (const auto& [op, start, end] : s.operations) {
        CHECK(start == static_cast<double>(op.stage.position() + op.microbatch.position()) * duration{2.0});
        CHECK(end == start + duration{2.0});
    }
    // Nothing else is kept for long, except an input and an output.
    const auto programs = *lower(p, s, {.message_bytes = 256, .forward_only = true});
    for (const auto& each : programs)
        CHECK(each.message_bytes <= 4 * 256);
}

TEST_CASE("what is wrong with forwards alone is found") {
    const auto p = even_problem();
    const auto good = forward_schedule(p);
    const auto fault = [&](const auto& change) {
        auto s = good;
        change(s.operations);
        const auto refused = lower(p, s, {.forward_only = true});
        REQUIRE(!refused);
        CHECK(describe(refused.why()).find("validate_forward_only says why") != std::string::npos);
        return all_of(validate_forward_only(p, s));
    };
    CHECK(fault([](auto& all) { all.pop_back(); }) == "rank 2: 2F3 is missing\n");
    CHECK(fault([](auto& all) { all.push_back(all.front()); }).find("0F0 appears twice") != std::string::npos);
    CHECK(fault([](auto& all) {
              all.push_back({optpipe::backward(stage{2}, microbatch{0}), duration{50.0}, duration{52.0}});
          }).find("2B0 isn't a forward") != std::string::npos);
    CHECK(fault([](auto& all) {
              auto& last = *std::find_if(all.begin(), all.end(),
                                         [](const auto& t) { return t.op == forward(stage{2}, microbatch{3}); });
              last.start = last.start - duration{1.0};
              last.end = last.end - duration{1.0};
          }).find("before 1F3's end") != std::string::npos);
    CHECK(!lower(p, good));
    CHECK(!lower(p, *build_schedule(p, optpipe::one_forward_one_backward), {.forward_only = true}));
}

TEST_CASE("programs of forwards alone are checked as such") {
    const auto p = even_problem();
    const auto good = *lower(p, forward_schedule(p), {.message_bytes = 24, .forward_only = true});
    auto programs = good;
    programs[rank{1}].forward_only = false;
    CHECK(all_of(check_programs(programs)) == "rank 1: isn't the program of this rank of these programs\n");
    for (auto& each : programs)
        each.forward_only = false;
    CHECK(all_of(check_programs(programs)).find("needs one F, either one B or one I and one W") != std::string::npos);

    auto training = *lower(p, *build_schedule(p, optpipe::one_forward_one_backward), {.update = true});
    for (auto& each : training)
        each.forward_only = true;
    const auto found = all_of(check_programs(training));
    CHECK(found.find("0B0 is in a program of forwards alone") != std::string::npos);
    CHECK(found.find("0F0 has a buffer that it has no use for") != std::string::npos);
    CHECK(found.find("updates: forwards alone leave nothing to update by") != std::string::npos);

    programs = good;
    auto& instructions = programs[rank{2}].instructions;
    const auto last = std::find_if(instructions.rbegin(), instructions.rend(),
                                   [](const auto& i) { return i.kind == optpipe::instruction_kind::compute; });
    last->op.kind = optpipe::operation_kind::recompute;
    CHECK(all_of(check_programs(programs)).find("stage 2, microbatch 3: needs one F") != std::string::npos);
}

TEST_CASE("messages of each boundary have sizes of their own") {
    const auto p = even_problem();
    const auto s = *build_schedule(p, optpipe::one_forward_one_backward);
    const auto programs =
        *lower(p, s, {.bytes_per_unit = 16.0, .alignment = 8, .message_bytes = 64, .boundary_bytes = {20}});
    CHECK(all_of(check_programs(programs)) == "");
    std::size_t ends = 0;
    for (const auto& each : programs)
        for (const auto& part : each.parts) {
            const auto s0 = part.message.stage.position();
            const auto boundary = part.message.kind == optpipe::operation_kind::forward ? s0 : s0 - 1;
            CHECK(each.buffers[part.buffer.position()].bytes == (boundary == 0 ? 24 : 64));
            ++ends;
        }
    CHECK(ends == 2 * 2 * 2 * 4);
    // Rank 0 has the messages of one boundary, rank 2 those of the other.
    CHECK(programs[rank{0}].message_bytes % 24 == 0);
    CHECK(programs[rank{2}].message_bytes % 64 == 0);
}

} // namespace
