// What `check_programs` finds wrong with recomputations: each fault in one program of a plan that has none.
#include "optpipe/pipeline/make_problem.hpp"
#include "optpipe/program/check.hpp"
#include "optpipe/program/lower.hpp"
#include "optpipe/program/write_program.hpp"
#include "optpipe/schedule/builders/zero_bubble_h1.hpp"
#include "optpipe/schedule/time/evaluate.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

using namespace optpipe;

namespace {

/// `weight_stash`: above 2, what is made again has room of its own.
per_rank<rank_program> sound_programs(double weight_stash = 3.0) {
    const stage_costs c{duration{1}, duration{2}, duration{1}, memory_size{2}, memory_size{weight_stash}, {}};
    const auto p = to_problem(make_problem(graph<2, 3>{}, uniform_memory{c}));
    const auto s = *build_schedule(p, zero_bubble_h1);
    return *lower(p, s, {.bytes_per_unit = 8.0, .message_bytes = 4096, .recompute = {stage{0}, stage{1}}});
}

/// Of rank 1.
std::size_t position_of(const rank_program& p, instruction_kind kind, const operation& op) {
    const auto found = std::find_if(p.instructions.begin(), p.instructions.end(),
                                    [&](const instruction& i) { return i.kind == kind && i.op == op; });
    REQUIRE(found != p.instructions.end());
    return static_cast<std::size_t>(found - p.instructions.begin());
}
constexpr operation again = forward(stage{1}, microbatch{1});
constexpr operation back = backward_input(stage{1}, microbatch{1});

template <class Change> std::string complaint_about(const Change& change) {
    auto programs = sound_programs();
    REQUIRE(check_programs(programs).empty());
    auto& p = programs[rank{1}];
    change(p, p.instructions[position_of(p, instruction_kind::recompute, again)],
           p.instructions[position_of(p, instruction_kind::compute, back)]);
    std::string text;
    for (const auto& v : check_programs(programs))
        text += v.text() + "\n";
    return text;
}
bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

} // namespace

TEST_CASE("a recomputation is spelled after the forward that it repeats") {
    std::ostringstream out;
    write_program(out, sound_programs()[rank{1}]);
    CHECK(contains(out.str(), "[compute] wait m"));
    CHECK(contains(out.str(), "recomputation of 1F1"));
}

TEST_CASE("it has the stash of its forward and room of its own, which the backward gets") {
    using enum buffer_role;
    CHECK(contains(complaint_about([](auto&, instruction& r, instruction&) { r.set(added, no_buffer); }),
                   "1I1 has another stash than it was given"));
    CHECK(contains(complaint_about([](auto&, instruction& r, instruction&) { r.set(kept, no_buffer); }),
                   "1I1 has another stash than it was given"));
    CHECK(contains(complaint_about([](auto&, instruction& r, instruction&) { r.set(output, r.buffer(kept)); }),
                   "recomputation of 1F1 has a buffer that it has no use for"));
    CHECK(contains(complaint_about([](auto&, instruction& r, instruction&) { r.set(host, r.buffer(kept)); }),
                   "recomputation of 1F1 has a buffer that it has no use for"));
    CHECK(contains(complaint_about([](rank_program& p, instruction& r, instruction&) {
                       ++p.buffers[r.buffer(added).position()].first_use;
                   }),
                   "recomputation of 1F1 fills a buffer that another instruction begins"));
    CHECK(contains(complaint_about([](rank_program& p, instruction& r, instruction&) {
                       auto& b = p.buffers[r.buffer(added).position()];
                       b.arena = memory_arena::message;
                   }),
                   "has a buffer in another arena"));
}

TEST_CASE("it appears once, before its backward, on the compute lane") {
    CHECK(contains(complaint_about([](auto&, instruction& r, instruction& b) { std::swap(r, b); }), "1I1"));
    CHECK(
        contains(complaint_about([](auto&, instruction& r, instruction&) { r.op = forward(stage{1}, microbatch{0}); }),
                 "recomputation of 1F0 appears twice"));
    CHECK(contains(complaint_about([](auto&, instruction& r, instruction&) { r.op = back; }),
                   "recomputation of 1I1 is of another kind"));
    CHECK(
        contains(complaint_about([](auto&, instruction& r, instruction&) { r.op = forward(stage{0}, microbatch{1}); }),
                 "recomputation of 0F1 is of a stage that rank"));
    CHECK(contains(complaint_about([](rank_program& p, instruction& r, instruction&) {
                       r.lane = static_cast<std::uint8_t>(p.lanes.size() - 1);
                   }),
                   "recomputation of 1F1 is on the lane '"));
}

TEST_CASE("it comes before its backward where they share no room, too") {
    auto programs = sound_programs(1.0);
    REQUIRE(check_programs(programs).empty());
    auto& p = programs[rank{1}];
    const auto first = position_of(p, instruction_kind::recompute, again);
    const auto second = position_of(p, instruction_kind::compute, back);
    // The output of the backward begins at its new position.
    p.buffers[p.instructions[second].buffer(buffer_role::output).position()].first_use =
        static_cast<std::uint32_t>(first);
    std::swap(p.instructions[first], p.instructions[second]);
    std::string text;
    for (const auto& v : check_programs(programs))
        text += v.text() + "\n";
    CHECK(contains(text, "1I1 needs what recomputation of 1F1"));
}

TEST_CASE("it waits for all that its backward needs") {
    auto programs = sound_programs();
    auto& p = programs[rank{0}];
    const auto position = position_of(p, instruction_kind::recompute, forward(stage{0}, microbatch{1}));
    REQUIRE(p.instructions[position].waits > 0); // for the gradient
    p.instructions[position].waits = 0;
    const auto found = check_programs(programs);
    REQUIRE(!found.empty());
    CHECK(contains(found.front().text(), "0I1 needs what receive of 1I1 from rank 1"));
}
