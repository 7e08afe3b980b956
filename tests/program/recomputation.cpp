// Faults of recomputations that `check_programs` finds: each in one program of a plan that has no other.
#include "execution/mixed_storage.hpp"
#include "optpipe/pipeline/make_problem.hpp"
#include "optpipe/program/check.hpp"
#include "optpipe/program/lower.hpp"
#include "optpipe/program/write_program.hpp"
#include "optpipe/schedule/builders/one_forward_one_backward.hpp"
#include "optpipe/schedule/builders/zero_bubble_h1.hpp"
#include "optpipe/schedule/time/evaluate.hpp"
#include "optpipe/testing/random_problem.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

using namespace optpipe;

namespace {

/// F leaves 1 of 4, of which W needs 2. RECOMPUTE restores 1 that is kept and 2 that are free after I. Stage 1 offloads
/// half of the memory that F leaves.
per_rank<rank_program> sound_programs(double weight_stash = 2.0) {
    const stage_costs c{duration{1}, duration{2}, duration{1}, memory_size{4}, memory_size{weight_stash}, {}};
    auto p = to_problem(make_problem(graph<2, 3>{}, uniform_memory{c}));
    auto plain = order_of(*build_schedule(p, zero_bubble_h1));
    for (const stage s : p.graph.all_stages())
        p.storage[s] = {{"ahead", memory_size{1}, duration{1}, {}, {}, {}}};
    p.storage[stage{1}][0].transfer_size = memory_size{0.5};
    p.storage[stage{1}][0].transfer = transfer_times{duration{0.5}, duration{0.5}};
    order mixed{p.graph, {}};
    for (const auto& op : plain.operations) {
        if (is_gradient(op.kind)) {
            if (op.stage == stage{1})
                for (const auto kind : {operation_kind::offload, operation_kind::reload})
                    mixed.operations.push_back(sibling(op, kind));
            mixed.operations.push_back(sibling(op, operation_kind::recompute));
        }
        mixed.operations.push_back(op);
    }
    return *lower(p, *simulate(p, mixed), {.bytes_per_unit = 8.0, .alignment = 1, .message_bytes = 4096});
}

/// The position of an operation in the program of rank 1.
std::size_t position_of(const rank_program& p, const operation& op) {
    const auto found = std::find_if(p.instructions.begin(), p.instructions.end(), [&](const instruction& i) {
        return i.kind != instruction_kind::exchange && i.op == op;
    });
    REQUIRE(found != p.instructions.end());
    return static_cast<std::size_t>(found - p.instructions.begin());
}
constexpr operation again = recompute_of(stage{1}, microbatch{1});
constexpr operation back = backward_input(stage{1}, microbatch{1});

std::string all_complaints(const per_rank<rank_program>& programs) {
    std::string text;
    for (const auto& v : check_programs(programs))
        text += v.text() + "\n";
    return text;
}
template <class Change> std::string complaint_about(const Change& change) {
    auto programs = sound_programs();
    REQUIRE(all_complaints(programs) == "");
    auto& p = programs[rank{1}];
    change(p, p.instructions[position_of(p, again)], p.instructions[position_of(p, back)]);
    return all_complaints(programs);
}
bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

} // namespace

TEST_CASE("a recomputation is spelled as everywhere") {
    std::ostringstream out;
    write_program(out, sound_programs()[rank{1}]);
    CHECK(contains(out.str(), "1RECOMPUTE1"));
}

TEST_CASE("it has what the forward left and room for the rest, which the backward gets") {
    using enum buffer_role;
    const auto programs = sound_programs();
    const auto& p = programs[rank{1}];
    const auto bytes_of = [&](const operation& op, buffer_role role) {
        const auto id = p.instructions[position_of(p, op)].buffer(role);
        return id == no_buffer ? std::size_t{0} : p.buffers[id.position()].bytes;
    };
    for (const auto& op : {again, back}) {
        CHECK(bytes_of(op, kept) == 4);
        CHECK(bytes_of(op, resident_kept) == 4);
        CHECK(bytes_of(op, restored_kept) == 8);
        CHECK(bytes_of(op, restored_freed) == 16);
        CHECK(bytes_of(op, freed) + bytes_of(op, resident_freed) + bytes_of(op, added) == 0);
    }
    CHECK(bytes_of(sibling(back, operation_kind::offload), kept) == 4);
    CHECK(bytes_of(sibling(back, operation_kind::offload), resident_kept) == 0);
    for (const auto role : {kept, resident_kept, restored_kept})
        CHECK(contains(complaint_about([&](auto&, instruction& r, instruction&) { r.set(role, no_buffer); }),
                       "has another stash than it was given"));
    CHECK(contains(complaint_about([](auto&, instruction&, instruction& b) { b.set(restored_freed, no_buffer); }),
                   "1I1 has another stash than it was given"));
    CHECK(contains(complaint_about([](auto&, instruction& r, instruction& b) {
                       r.first_link = b.first_link;
                       r.links = b.links;
                   }),
                   "1RECOMPUTE1 has an "));
    for (const auto role : {host, added})
        CHECK(contains(complaint_about([&](auto&, instruction& r, instruction&) { r.set(role, r.buffer(kept)); }),
                       "1RECOMPUTE1 has a buffer that it has no use for"));
    CHECK(contains(complaint_about([](rank_program& of, instruction& r, instruction&) {
                       ++of.buffers[r.buffer(restored_kept).position()].first_use;
                   }),
                   "1RECOMPUTE1 fills a buffer that another instruction begins"));
    CHECK(contains(complaint_about([](rank_program& of, instruction& r, instruction&) {
                       of.buffers[r.buffer(restored_kept).position()].arena = memory_arena::message;
                   }),
                   "has a buffer in another arena"));
}

TEST_CASE("it appears once, before its backward, on the compute lane, and with the option of its forward") {
    CHECK(contains(complaint_about([](auto&, instruction& r, instruction& b) { std::swap(r, b); }), "1I1"));
    CHECK(contains(complaint_about([](auto&, instruction& r, instruction&) { r.op.microbatch = microbatch{0}; }),
                   "1RECOMPUTE0 appears twice"));
    CHECK(contains(complaint_about([](auto&, instruction& r, instruction&) { r.op.stage = stage{0}; }),
                   "0RECOMPUTE1 is of a stage that rank"));
    CHECK(contains(complaint_about([](rank_program& p, instruction& r, instruction&) {
                       r.lane = static_cast<std::uint8_t>(p.lanes.size() - 1);
                   }),
                   "1RECOMPUTE1 is on the lane '"));
    CHECK(contains(complaint_about([](auto&, instruction& r, instruction&) { r.op.storage = 1; }),
                   "1RECOMPUTE1 has another storage option than its forward"));
}

TEST_CASE("where one microbatch is recomputed, those that are stored alike are too") {
    using enum buffer_role;
    auto programs = sound_programs();
    auto& p = programs[rank{1}];
    for (auto& i : p.instructions)
        if (i.op.microbatch == microbatch{1})
            for (const auto role : {restored_kept, restored_freed})
                i.set(role, no_buffer);
    CHECK(contains(all_complaints(programs), "1F1 is stashed in another number of bytes than a microbatch before"));
}

TEST_CASE("it waits for what brings the stash back, and its backward for it") {
    auto programs = sound_programs();
    auto& p = programs[rank{1}];
    const auto position = position_of(p, again);
    REQUIRE(p.instructions[position].waits > 0); // for the reload
    p.instructions[position].waits = 0;
    CHECK(contains(all_complaints(programs), "1RECOMPUTE1 needs what 1RELOAD1"));
}

TEST_CASE("it comes before its backward where it restores nothing, too") {
    const stage_costs c{duration{1}, duration{2}, duration{1}, memory_size{4}, memory_size{2}, {}};
    auto p = to_problem(make_problem(graph<1, 1>{}, uniform_memory{c}));
    p.storage[stage{0}] = {{"nothing", memory_size{4}, duration{1}, {}, {}, {}}};
    const stage s{0};
    const microbatch m{0};
    auto programs = *lower(p, *simulate(p, order{p.graph, {forward(s, m), recompute_of(s, m), backward(s, m)}}),
                           {.bytes_per_unit = 8.0, .alignment = 1});
    REQUIRE(all_complaints(programs) == "");
    auto& own = programs[rank{0}];
    std::swap(own.instructions[1], own.instructions[2]);
    for (auto& b : own.buffers)
        b.last_use = 2;
    CHECK(contains(all_complaints(programs), "0B0 needs what 0RECOMPUTE0"));
}

TEST_CASE("programs of random mixes of storage options pass the check, in the memory of the plan") {
    std::size_t lowered = 0;
    for (std::uint64_t seed = 8100; seed < 8220; ++seed) {
        CAPTURE(seed);
        random_numbers random{seed};
        constexpr testing::problem_ranges ranges{.ranks = 4, .stages = 8, .microbatches = 6, .cells = 30};
        const auto p = mixed_storage::with_options(testing::make_random_problem(random, ranges).problem, random);
        const auto plain = mixed_storage::without_options(p);
        const auto try_it = [&](const auto& build) {
            const auto built = build_schedule(plain, build);
            if (!built) return;
            const auto [tight, s] = mixed_storage::make(p, *built, random);
            const auto planned = measure(tight, s);
            std::vector<held_for_weight> kept;
            for (const stage at : p.graph.all_stages())
                for (std::size_t i = 0; i < p.storage[at].size(); ++i)
                    if (random.chance(50))
                        kept.push_back({at, static_cast<storage_index>(i),
                                        memory_size{0.25 * static_cast<double>(random.below(5))}});
            for (const auto lanes : {message_lanes::separate, message_lanes::per_direction, message_lanes::single})
                for (const auto placement : {part_placement::exact, part_placement::contiguous}) {
                    const auto programs = lower(tight, s,
                                                {.bytes_per_unit = 4.0,
                                                 .alignment = 1,
                                                 .message_bytes = 8,
                                                 .lanes = lanes,
                                                 .placement = placement,
                                                 .kept = kept});
                    if (!programs && placement == part_placement::contiguous) continue;
                    REQUIRE(programs);
                    ++lowered;
                    CHECK(all_complaints(*programs) == "");
                    if (placement == part_placement::contiguous) continue;
                    for (const auto& each : *programs) {
                        CHECK(each.device_bytes == std::lround(4.0 * planned.peak_memory[each.self].value()));
                        CHECK(each.host_bytes == std::lround(4.0 * planned.peak_host_memory[each.self].value()));
                    }
                }
        };
        try_it(one_forward_one_backward);
        try_it(zero_bubble_h1);
    }
    CHECK(lowered > 300);
}
