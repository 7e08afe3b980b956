// Storage options per stage and microbatch, from the program to the run: RECOMPUTE, recomputation inside the backward,
// and offloads of a part.
#include "execution/follow.hpp"
#include "execution/mixed_storage.hpp"
#include "execution/random_programs.hpp"
#include "execution/trace_run.hpp"
#include "optpipe/execution/measured.hpp"
#include "optpipe/execution/run.hpp"
#include "optpipe/execution/threads/run.hpp"
#include "optpipe/pipeline/make_problem.hpp"
#include "optpipe/program/check.hpp"
#include "optpipe/program/lower.hpp"
#include "optpipe/schedule/builders/gpipe.hpp"
#include "optpipe/schedule/builders/one_forward_one_backward.hpp"
#include "optpipe/schedule/builders/zero_bubble_h1.hpp"
#include "optpipe/schedule/pair.hpp"
#include "optpipe/schedule/time/evaluate.hpp"
#include "optpipe/schedule/time/validate.hpp"
#include "optpipe/testing/executor_model.hpp"
#include "optpipe/testing/random_problem.hpp"
#include "oracle/random_pairs.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

using namespace optpipe;

namespace {

using testing::tracing_model;

constexpr std::uint64_t first_seed = 6400;
constexpr testing::problem_ranges ranges{.ranks = 4, .stages = 8, .microbatches = 5, .cells = 24};

/// Calls `visit(problem, schedule, random)` for mixes of options, in orders of published schedules.
template <class Visit> void for_mixed_schedules(std::size_t problems, Visit visit) {
    for (std::uint64_t seed = first_seed; seed < first_seed + problems; ++seed) {
        CAPTURE(seed);
        random_numbers random{seed};
        const auto p = mixed_storage::with_options(testing::make_random_problem(random, ranges).problem, random);
        const auto plain = mixed_storage::without_options(p);
        const auto try_it = [&](const auto& build) {
            const auto s = build_schedule(plain, build);
            if (!s) return;
            const std::string name{build.name};
            CAPTURE(name);
            const auto [tight, mixed] = mixed_storage::make(p, *s, random);
            REQUIRE(is_valid(tight, mixed));
            visit(tight, mixed, seed);
            const auto paired = oracle::with_random_pairs(random, tight);
            if (const auto merged = oracle::with_all_pairs(paired, mixed); has_pairs(merged.operations))
                visit(paired, merged, seed);
        };
        try_it(gpipe);
        try_it(one_forward_one_backward);
        try_it(zero_bubble_h1);
    }
}

std::size_t count_of(operation_kind kind, const schedule& s) {
    return static_cast<std::size_t>(std::count_if(s.operations.begin(), s.operations.end(),
                                                  [=](const auto& timed) { return timed.op.kind == kind; }));
}

/// Two ranks. F stashes 3, of which W needs 1. Option 0 keeps all; options 1 and 2 recompute 2 of them, ahead or inside
/// the backward.
problem two_ranks() {
    const stage_costs c{duration{1}, duration{2}, duration{1}, memory_size{3}, memory_size{1}, {}};
    auto p = to_problem(make_problem(graph<2, 4>{}, uniform_memory{c}));
    for (const stage s : p.graph.all_stages()) {
        p.storage[s].push_back({"ahead", memory_size{1}, duration{1}, {}, {}, {}});
        p.storage[s].push_back({"inside", memory_size{0.5}, {}, duration{1}, {}, {}});
    }
    p.p2p = hop_times<>{duration{0.5}};
    return p;
}
/// Consecutive microbatches use the three options in rotation.
schedule mixed_1f1b(const problem& p) {
    auto plain = order_of(*build_schedule(mixed_storage::without_options(p), one_forward_one_backward));
    order mixed{p.graph, {}};
    for (auto op : plain.operations) {
        op.storage = static_cast<storage_index>(op.microbatch.position() % 3);
        if (is_gradient(op.kind) && op.storage == 1) mixed.operations.push_back(sibling(op, operation_kind::recompute));
        mixed.operations.push_back(op);
    }
    return *simulate(p, mixed);
}

/// Has every function of a model except `recompute`.
struct forgetful {
    template <class Lane> void forward(Lane&, const execution::forward_task&) {}
    template <class Lane> void backward_input(Lane&, const execution::backward_task&) {}
    template <class Lane> void backward_weight(Lane&, const execution::weight_task&) {}
};

/// Has every function of a model except `overlap`.
struct remembering : forgetful {
    template <class Lane> void recompute(Lane&, const execution::recompute_task&) {}
};

std::size_t bytes_of(execution::stash_part part) {
    std::size_t bytes = 0;
    for (const auto& piece : part)
        bytes += piece.size();
    return bytes;
}

/// Records the option of each call, and the number of bytes of its stash.
struct noting_model {
    using note = std::tuple<char, std::uint32_t, int, std::vector<std::size_t>>;
    std::set<note> notes;
    template <class Task> void take(char what, const Task& t, std::vector<std::size_t> bytes) {
        notes.insert({what, t.microbatch.value(), int{t.storage}, std::move(bytes)});
    }
    template <class Lane> void forward(Lane&, const execution::forward_task& t) {
        take('F', t, {bytes_of(t.kept), bytes_of(t.freed)});
    }
    template <class Lane> void recompute(Lane&, const execution::recompute_task& t) {
        take('C', t, {bytes_of(t.kept), bytes_of(t.freed), bytes_of(t.restored_kept), bytes_of(t.restored_freed)});
    }
    template <class Lane> void backward_input(Lane&, const execution::backward_task& t) {
        take('I', t,
             {bytes_of(t.kept), bytes_of(t.freed), bytes_of(t.restored_kept), bytes_of(t.restored_freed),
              bytes_of(t.added)});
    }
    template <class Lane> void backward_weight(Lane&, const execution::weight_task& t) {
        take('W', t, {bytes_of(t.kept), bytes_of(t.restored_kept), bytes_of(t.added)});
    }
};

} // namespace

TEST_CASE("on virtual time, programs follow schedules that mix storage options, in exactly the memory of the plan") {
    std::size_t followed = 0;
    std::size_t recomputations = 0;
    std::size_t offloads = 0;
    std::size_t pairs = 0;
    for_mixed_schedules(150, [&](const problem& p, const schedule& s, std::uint64_t) {
        bool lowered = false;
        CHECK(follow::follower{p, s, 4.0}.follow(message_lanes::separate, lowered) == "");
        followed += lowered ? 1 : 0;
        recomputations += count_of(operation_kind::recompute, s);
        offloads += count_of(operation_kind::offload, s);
        pairs += random_programs::pairs_of(s);
    });
    MESSAGE(followed << " schedules, " << recomputations << " recomputations, " << offloads << " offloads, " << pairs
                     << " pairs");
    CHECK(followed > 200);
    CHECK(recomputations > 400);
    CHECK(offloads > 500);
    CHECK(pairs > 100);
}

TEST_CASE("on threads, whatever the timing") {
    for_mixed_schedules(20, [&](const problem& p, const schedule& s, std::uint64_t seed) {
        const auto programs = random_programs::lowered(p, s, seed);
        REQUIRE(programs);
        threads::options how;
        how.device_memory = how.host_memory = per_rank<std::size_t>(programs->size());
        for (const auto& each : *programs) {
            how.device_memory[each.self] = each.device_bytes + each.message_bytes;
            how.host_memory[each.self] = each.host_bytes;
        }
        how.record_times = true;
        threads::cluster ranks{p.graph.ranks(), how};
        std::vector<tracing_model> models(p.graph.ranks(),
                                          tracing_model{p.graph.stages(), random_programs::jitter(seed)});
        const auto times = threads::run(
            *programs, ranks, [&](rank r) -> auto& { return models[r.position()]; }, 2);
        std::size_t recomputations = 0;
        std::size_t pairs = 0;
        for (const auto& each : models) {
            recomputations += each.recomputations();
            pairs += each.pairs();
        }
        CHECK(recomputations == 2 * count_of(operation_kind::recompute, s));
        CHECK(pairs == 2 * random_programs::pairs_of(s));
        const auto measured = measured_schedule(p.graph, times, std::chrono::milliseconds{1});
        CHECK(measurement_violations(s, measured).empty());
        const operation_numbering<any_graph> number{p.graph};
        std::vector<storage_index> planned(number.size());
        for (const auto& timed : s.operations)
            planned[number(timed.op)] = timed.op.storage;
        CHECK(std::all_of(measured.operations.begin(), measured.operations.end(),
                          [&](const auto& timed) { return timed.op.storage == planned[number(timed.op)]; }));
    });
}

TEST_CASE("a measured recomputation is an operation with its own time") {
    const auto p = two_ranks();
    const auto s = mixed_1f1b(p);
    const auto programs = *lower(p, s, {.bytes_per_unit = 4.0, .alignment = 1, .message_bytes = 16});
    std::vector<tracing_model> models(2, tracing_model{2});
    const auto result = testing::trace(
        programs, testing::planned_costs(p, &s), [&](rank r) -> auto& { return models[r.position()]; });
    REQUIRE(!result.failed.has_value());
    const auto measured = measured_schedule(p.graph, result.times, std::chrono::seconds{1});
    CHECK(measurement_violations(s, measured).empty());
    for (const auto& d : compare_kinds(s, measured)) {
        CHECK(d.worst.value() == doctest::Approx(0.0));
        CHECK(d.latest.value() == doctest::Approx(0.0));
    }
    CHECK(measure(p, measured).recompute_rate == doctest::Approx(measure(p, s).recompute_rate));
    for (const auto& each : result.times)
        CHECK(high_water(each, memory_arena::device) == each.program->device_bytes);
}

TEST_CASE("a measured pair has one time, and a model that can't run it is refused") {
    auto p = two_ranks();
    for (const stage s : p.graph.all_stages())
        p.overlaps.add({s, s, overlap_kind::backward, duration{3.0}, memory_size{0.5}});
    const auto s = oracle::with_all_pairs(p, mixed_1f1b(p));
    REQUIRE(has_pairs(s.operations));
    const auto programs = *lower(p, s, {.bytes_per_unit = 4.0, .alignment = 1, .message_bytes = 16});
    std::vector<tracing_model> models(2, tracing_model{2});
    const auto result = testing::trace(
        programs, testing::planned_costs(p, &s), [&](rank r) -> auto& { return models[r.position()]; });
    REQUIRE(!result.failed.has_value());
    CHECK(is_valid(p, measured_schedule(p.graph, result.times, std::chrono::seconds{1})));
    remembering unable;
    CHECK_THROWS_WITH(static_cast<void>(testing::trace(
                          programs, {}, [&](rank) -> auto& { return unable; })),
                      "rank 0, loading its program: a program with pairs, and a model without "
                      "`void overlap(lane&, const forward_task&, const backward_task&)`");
    static_assert(execution::check_overlapping_stage_model<tracing_model, threads::lane>());
    static_assert(!execution::overlapping_stage_model<remembering, threads::lane>);
}

TEST_CASE("every call is told its option, and has the stash of it") {
    auto p = two_ranks();
    const auto full = mixed_1f1b(p);
    const auto with = [](const problem& of, const schedule& s) {
        std::vector<noting_model> models(2);
        const auto programs = *lower(of, s, {.bytes_per_unit = 4.0, .alignment = 1, .message_bytes = 16});
        const auto result = testing::trace(
            programs, testing::planned_costs(of), [&](rank r) -> auto& { return models[r.position()]; });
        CHECK(!result.failed.has_value());
        return models[1].notes;
    };
    // 12 bytes of activation; W needs 4.
    const std::set<noting_model::note> expected{
        {'F', 0, 0, {4, 8}},    {'I', 0, 0, {4, 8, 0, 0, 0}}, {'W', 0, 0, {4, 0, 0}},
        {'F', 1, 1, {4, 0}},    {'C', 1, 1, {4, 0, 0, 8}},    {'I', 1, 1, {4, 0, 0, 8, 0}},
        {'W', 1, 1, {4, 0, 0}}, {'F', 2, 2, {2, 0}},          {'I', 2, 2, {2, 0, 0, 0, 0}},
        {'W', 2, 2, {2, 0, 0}}, {'F', 3, 0, {4, 8}},          {'I', 3, 0, {4, 8, 0, 0, 0}},
        {'W', 3, 0, {4, 0, 0}}};
    CHECK(with(p, full) == expected);
}

TEST_CASE("what is left of a stash for W may be more than was held, and a part of it may be restored") {
    auto p = two_ranks();
    for (auto& c : p.costs)
        c.weight_stash = memory_size{2};
    for (const stage s : p.graph.all_stages())
        p.storage[s][1].held = memory_size{1.5};
    p.storage[stage{1}][1].transfer = transfer_times{duration{1}, duration{1}};
    p.storage[stage{1}][1].transfer_size = memory_size{0.75};
    auto plain = order_of(*build_schedule(mixed_storage::without_options(p), zero_bubble_h1));
    order mixed{p.graph, {}};
    for (auto op : plain.operations) {
        op.storage = static_cast<storage_index>(1 + op.microbatch.position() % 2);
        if (is_gradient(op.kind) && op.storage == 1) {
            if (op.stage == stage{1}) mixed.operations.push_back(sibling(op, operation_kind::offload));
            if (op.stage == stage{1}) mixed.operations.push_back(sibling(op, operation_kind::reload));
            mixed.operations.push_back(sibling(op, operation_kind::recompute));
        }
        mixed.operations.push_back(op);
    }
    const auto s = *simulate(p, mixed);
    std::vector<noting_model> models(2);
    const auto programs = *lower(
        p, s, {.bytes_per_unit = 4.0, .alignment = 1, .message_bytes = 16, .placement = part_placement::contiguous});
    CHECK(check_programs(programs).empty());
    const auto result = testing::trace(
        programs, testing::planned_costs(p), [&](rank r) -> auto& { return models[r.position()]; });
    CHECK(!result.failed.has_value());
    // 12 bytes of activation; W needs 8. Option 1 holds 6 and restores all 12; option 2 holds 2.
    const std::set<noting_model::note> expected{
        {'F', 0, 1, {6, 0}},          {'C', 0, 1, {6, 0, 2, 4}}, {'I', 0, 1, {6, 0, 2, 4, 0}},
        {'W', 0, 1, {6, 2, 0}},       {'F', 1, 2, {2, 0}},       {'I', 1, 2, {2, 0, 0, 0, 6}},
        {'W', 1, 2, {2, 0, 6}},       {'F', 2, 1, {6, 0}},       {'C', 2, 1, {6, 0, 2, 4}},
        {'I', 2, 1, {6, 0, 2, 4, 0}}, {'W', 2, 1, {6, 2, 0}},    {'F', 3, 2, {2, 0}},
        {'I', 3, 2, {2, 0, 0, 0, 6}}, {'W', 3, 2, {2, 0, 6}}};
    for (const auto& each : models)
        CHECK(each.notes == expected);
    CHECK(programs[rank{1}].host_bytes == 3);
}

TEST_CASE("what is held is divided as it is told, so that what is restored for W stays where it is made") {
    const auto p = two_ranks();
    const auto s = mixed_1f1b(p);
    const auto parts = [&](double kept) {
        std::vector<noting_model> models(2);
        const auto programs = *lower(p, s,
                                     {.bytes_per_unit = 4.0,
                                      .alignment = 1,
                                      .message_bytes = 16,
                                      .kept = {{stage{0}, 1, memory_size{kept}}, {stage{1}, 1, memory_size{kept}}}});
        CHECK(check_programs(programs).empty());
        CHECK(programs[rank{0}].device_bytes ==
              static_cast<std::size_t>(4.0 * measure(p, s).peak_memory[rank{0}].value()));
        const auto result = testing::trace(
            programs, testing::planned_costs(p), [&](rank r) -> auto& { return models[r.position()]; });
        CHECK(!result.failed.has_value());
        for (const auto& [what, m, storage, bytes] : models[1].notes)
            if (what == 'C') return bytes;
        return std::vector<std::size_t>{};
    };
    // W needs 4 of the 4 bytes that are held and the 8 that are restored.
    CHECK(parts(0.0) == std::vector<std::size_t>{0, 4, 4, 4});
    CHECK(parts(0.25) == std::vector<std::size_t>{1, 3, 3, 5});
    CHECK(parts(9.0) == std::vector<std::size_t>{4, 0, 0, 8});
}

TEST_CASE("a model that can't recompute is refused when its program is loaded") {
    static_assert(!execution::has_recompute<forgetful, threads::lane>);
    static_assert(execution::has_recompute<tracing_model, threads::lane>);
    const auto p = two_ranks();
    const auto programs = *lower(p, mixed_1f1b(p), {.bytes_per_unit = 4.0, .alignment = 1, .message_bytes = 16});
    threads::cluster ranks{2};
    std::vector<forgetful> models(2);
    CHECK_THROWS_WITH_AS(threads::run(
                             programs, ranks, [&](rank r) -> auto& { return models[r.position()]; }),
                         doctest::Contains("void recompute(lane&, const recompute_task&)"), error);
}
