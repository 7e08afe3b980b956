// Reoptimization of parts of schedules.
#include "optpipe/planner/cp/reoptimize.hpp"

#include "optpipe/core/random.hpp"
#include "optpipe/planner/portfolio/search_state.hpp"
#include "optpipe/schedule/builders/adaptive.hpp"
#include "optpipe/schedule/time/evaluate.hpp"
#include "optpipe/schedule/time/measure.hpp"
#include "optpipe/testing/random_problem.hpp"
#include "oracle/exhaustive.hpp"
#include "oracle/random_cases.hpp"
#include "oracle/random_problem.hpp"
#include "oracle/random_schedule.hpp"
#include "oracle/reference_checker.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>

using namespace optpipe;
using namespace optpipe::literals;

namespace {

constexpr auto everything = [](const operation&) { return true; };

schedule some_schedule(const problem& p) {
    const auto built = build_schedule(p, adaptive_builder<>{.effort = 1});
    return built ? *built : schedule{};
}

/// Whether I followed at once by W is as good as B, and no operation is a B that might be split.
bool splits_freely(const problem& p, const schedule& s) {
    for (const stage at : p.graph.all_stages())
        for (std::size_t o = 0; o < p.storage_options(at); ++o)
            if (p.costs[at].weight_stash > p.storage_of(at, o).restored(p.costs[at])) return false;
    return !p.split_backward || std::none_of(s.operations.begin(), s.operations.end(), [](const timed_operation& t) {
        return t.op.kind == operation_kind::backward;
    });
}

/// Every storage option of every stage that lists some.
cp::storage_candidates all_options(const problem& p) {
    cp::storage_candidates result(p.graph.stages());
    for (const stage s : p.graph.all_stages())
        for (std::size_t o = 0; o < p.storage[s].size(); ++o)
            result[s.position()].push_back(static_cast<storage_index>(o));
    return result;
}

} // namespace

TEST_CASE("with everything free the optimum is found, and nothing better") {
    random_numbers random{4};
    std::size_t looked_at = 0;
    std::size_t settled = 0;
    std::size_t reached = 0;
    for (std::size_t i = 0; i < oracle::random_cases(150); ++i) {
        CAPTURE(i);
        const auto r = testing::make_random_problem(random, {.cells = 6});
        const auto current = some_schedule(r.problem);
        if (current.operations.empty()) continue;
        const auto best = oracle::exhaustive_optimum(r.problem, r.grid);
        if (!best.proven || !best.objective) continue;
        ++looked_at;
        const duration optimum{*best.objective};
        const auto found = cp::reoptimize(r.problem, current, everything, optimum, {.conflicts = 10'000});
        CHECK(found.settled);
        // Splits of the current schedule stay, and no others are made.
        if (found.better) CHECK(objective_of(r.problem, *found.better).value() == doctest::Approx(optimum.value()));
        if (splits_freely(r.problem, current)) {
            // Otherwise the search would settle that there is none.
            CHECK(found.better);
            ++reached;
        }
        const auto less = cp::reoptimize(r.problem, current, everything, 0.999 * optimum, {.conflicts = 10'000});
        CHECK_FALSE(less.better);
        settled += less.settled ? 1 : 0;
        const auto same = cp::reoptimize(r.problem, current, everything, objective_of(r.problem, current));
        CHECK(same.better);
    }
    CHECK(looked_at > oracle::random_cases(100));
    CHECK(reached > oracle::random_cases(50));
    CHECK(settled > 0);
}

TEST_CASE("with all storage options to choose from the optimum is found from any start, and nothing better") {
    std::size_t reached = 0;
    std::size_t refuted = 0;
    const std::size_t cases = oracle::random_cases(300);
    for (std::size_t i = 0; i < cases; ++i) {
        CAPTURE(i);
        oracle::random_numbers random{31'000 + i};
        const auto r = oracle::make_random_problem(
            random, {.cells = 5, .offloading_percent = 60, .span_percent = 10, .storage_percent = 100});
        const auto& p = r.problem;
        if (is_described_by_costs(p)) continue;
        search_state start{p};
        start.offer(oracle::random_order(random, p), "start");
        if (!start.incumbent() || !splits_freely(p, *start.incumbent())) continue;
        const auto best = oracle::exhaustive_optimum(p, r.grid, 20'000);
        if (!best.proven || !best.objective) continue;
        const duration optimum{*best.objective};
        const auto found = cp::reoptimize(p, *start.incumbent(), everything, optimum,
                                          {.conflicts = 20'000, .candidates = all_options(p)});
        CHECK(found.better.has_value() == found.settled);
        if (!found.better) continue;
        const auto verdict = oracle::judge(p, *found.better);
        CHECK_MESSAGE(verdict.valid(), verdict.text());
        CHECK(verdict.objective == doctest::Approx(optimum.value()));
        ++reached;
        const auto less = cp::reoptimize(p, *start.incumbent(), everything, 0.999 * optimum,
                                         {.conflicts = 20'000, .candidates = all_options(p)});
        CHECK_FALSE(less.better);
        refuted += less.settled ? 1 : 0;
    }
    CHECK(reached > cases / 6);
    CHECK(refuted > 0);
}

TEST_CASE("operations that only some storage options need don't bound the span of a rank") {
    problem p{any_graph{1, 1, placement::map<>{per_stage<rank>(1)}},
              per_stage<stage_costs>(1, {1_ms, 1_ms, 1_ms, memory_size{1.0}, memory_size{0.0}})};
    p.split_backward = false;
    p.objective = objective_kind::span;
    p.storage[stage{0}] = {keep_stash(p.costs[stage{0}]),
                           {"ahead", memory_size{0.5}, 2_ms, {}, {}, {}},
                           {"inside", memory_size{0.5}, {}, 2_ms, {}, {}}};
    const auto with_option = [](operation op, storage_index o) {
        op.storage = o;
        return op;
    };
    const auto of = [](operation_kind kind) { return operation{stage{0}, kind, microbatch{0}}; };
    const auto all_ends = std::array{3_ms, 5_ms, 5_ms};
    for (storage_index o = 0; o < all_ends.size(); ++o) {
        CAPTURE(o);
        const auto back = o == 1 ? 3_ms : 1_ms;
        schedule current{p.graph, {{with_option(of(operation_kind::forward), o), {}, 1_ms}}};
        if (o == 1) current.operations.push_back({with_option(of(operation_kind::recompute), o), 1_ms, back});
        current.operations.push_back({with_option(of(operation_kind::backward), o), back, all_ends[o]});
        REQUIRE(is_valid(p, current));
        const auto found = cp::reoptimize(p, current, everything, 3_ms, {.candidates = all_options(p)});
        CHECK(found.settled);
        REQUIRE(found.better);
        CHECK(objective_of(p, *found.better) == 3_ms);
    }
}

TEST_CASE("an offload is dropped also where memory is unlimited") {
    problem p{
        any_graph{1, 1, placement::map<>{per_stage<rank>(1)}},
        per_stage<stage_costs>(1, {1_ms, 1_ms, 1_ms, memory_size{1.0}, memory_size{0.5}, transfer_times{2_ms, 2_ms}})};
    const stage s{0};
    const microbatch m{0};
    const schedule current{p.graph,
                           {{forward(s, m), {}, 1_ms},
                            {offload_of(s, m), 1_ms, 3_ms},
                            {reload_of(s, m), 3_ms, 5_ms},
                            {backward_input(s, m), 5_ms, 6_ms},
                            {backward_weight(s, m), 6_ms, 7_ms}}};
    REQUIRE(is_valid(p, current));
    const auto found = cp::reoptimize(p, current, everything, 3_ms);
    CHECK(found.settled);
    REQUIRE(found.better);
    CHECK(objective_of(p, *found.better) == 3_ms);
}

TEST_CASE("stashes of free microbatches change their storage, others don't; what is better is valid") {
    std::size_t kept = 0;
    std::size_t better = 0;
    std::size_t changed = 0;
    const std::size_t cases = oracle::random_cases(200);
    for (std::size_t i = 0; i < cases; ++i) {
        CAPTURE(i);
        oracle::random_numbers random{77'000 + i};
        const auto p = oracle::make_random_problem(random, {.ranks = 4,
                                                            .stages = 6,
                                                            .microbatches = 6,
                                                            .cells = 24,
                                                            .offloading_percent = 60,
                                                            .storage_percent = 100})
                           .problem;
        search_state start{p};
        start.offer(oracle::random_order(random, p), "start");
        if (!start.incumbent() || is_described_by_costs(p)) continue;
        const auto& current = *start.incumbent();
        const auto some = [](const operation& op) { return op.microbatch.position() % 3 == 0; };
        const auto same = cp::reoptimize(p, current, some, objective_of(p, current),
                                         {.conflicts = 10'000, .candidates = all_options(p)});
        CHECK(same.better.has_value() == same.settled);
        kept += same.better ? 1 : 0;
        const auto found = cp::reoptimize(p, current, some, 0.97 * objective_of(p, current),
                                          {.conflicts = 10'000, .candidates = all_options(p)});
        if (!found.better) continue;
        const auto verdict = oracle::judge(p, *found.better);
        CHECK_MESSAGE(verdict.valid(), verdict.text());
        ++better;
        for (const auto& timed : found.better->operations) {
            const auto& op = timed.op;
            if (op.kind != operation_kind::forward) continue;
            const auto before =
                std::find_if(current.operations.begin(), current.operations.end(), [&](const timed_operation& t) {
                    return t.op.kind == op.kind && t.op.stage == op.stage && t.op.microbatch == op.microbatch;
                });
            REQUIRE(before != current.operations.end());
            if (before->op.storage == op.storage) continue;
            CHECK(some(op));
            ++changed;
        }
    }
    CHECK(kept > 0);
    CHECK(better > cases / 8);
    // Windows begin with the options in use.
    CHECK(changed > cases / 40);
}

TEST_CASE("what is better is valid, and as good as asked for; what is the same is found with anything free") {
    random_numbers random{5};
    for (std::size_t i = 0; i < oracle::random_cases(300); ++i) {
        CAPTURE(i);
        const auto r = testing::make_random_problem(random, {.ranks = 4, .stages = 8, .microbatches = 6, .cells = 24});
        const auto& p = r.problem;
        const auto current = some_schedule(p);
        if (current.operations.empty()) continue;
        const auto objective = objective_of(p, current);
        const auto some = [&, salt = random.next()](const operation& op) {
            const auto a = op.microbatch.position() + salt;
            return a % p.graph.microbatches() < 2 && (salt % 3 != 0 || op.stage.position() % 2 == 0);
        };
        const auto same = cp::reoptimize(p, current, some, objective);
        CHECK(same.better);
        const auto target = 0.97 * objective;
        const auto found = cp::reoptimize(p, current, some, target, {.conflicts = 500});
        if (found.better) CHECK(objective_of(p, *found.better) <= target + duration{1e-6});
    }
}

TEST_CASE("what is settled for more free operations holds for fewer") {
    random_numbers random{6};
    std::size_t none = 0;
    std::size_t some_better = 0;
    const auto cases = 400 / oracle::stride(4);
    for (std::size_t i = 0; i < cases; ++i) {
        CAPTURE(i);
        const auto r = testing::make_random_problem(random, {.ranks = 3, .stages = 4, .microbatches = 4, .cells = 10});
        const auto current = some_schedule(r.problem);
        if (current.operations.empty()) continue;
        const auto target = (1.0 - 0.02 * static_cast<double>(random.below(4) + 1)) * objective_of(r.problem, current);
        const auto pivot = random.below(r.problem.graph.microbatches());
        const auto few = [&](const operation& op) { return op.microbatch.position() == pivot; };
        const auto more = [&](const operation& op) { return op.microbatch.position() >= pivot; };
        const auto of_few = cp::reoptimize(r.problem, current, few, target, {.conflicts = 3000});
        const auto of_more = cp::reoptimize(r.problem, current, more, target, {.conflicts = 3000});
        if (of_few.better) CHECK((of_more.better || !of_more.settled));
        if (of_more.settled && !of_more.better) CHECK_FALSE(of_few.better);
        some_better += of_few.better ? 1 : 0;
        none += of_more.settled && !of_more.better ? 1 : 0;
    }
    CHECK(none > cases / 8);
    CHECK(some_better > cases / 40);
}

TEST_CASE("transfers that take no time may change places at one instant") {
    // At 2 one stash comes back and another one leaves. Neither the device nor the host has room for both, and at one
    // instant releases come before acquisitions. No order of the two transfers allows that.
    stage_costs costs;
    costs.forward = costs.backward_input = costs.backward_weight = duration{1.0};
    costs.activation = costs.weight_stash = memory_size{1.0};
    costs.transfer = transfer_times{duration{}, duration{}};
    problem p{to_any_graph(graph<1, 2>{}), per_stage<stage_costs>(1, costs)};
    p.memory_limit[rank{0}] = p.host_memory_limit[rank{0}] = memory_size{1.0};
    schedule current{p.graph, {}};
    for (const auto& [text, start] : {std::pair{"0F0", 0.0},
                                      {"0OFFLOAD0", 1.0},
                                      {"0F1", 1.0},
                                      {"0OFFLOAD1", 2.0},
                                      {"0RELOAD0", 2.0},
                                      {"0I0", 2.0},
                                      {"0W0", 3.0},
                                      {"0RELOAD1", 4.0},
                                      {"0I1", 4.0},
                                      {"0W1", 5.0}}) {
        auto op = *parse_operation(text);
        op.storage = 1;
        current.operations.push_back({op, duration{start}, duration{start} + duration_of(p, op)});
    }
    REQUIRE(validate(p, current).empty());
    const auto last = [](const operation& op) { return op == backward_weight(stage{0}, microbatch{1}); };
    for (const auto engines : {1, 2}) {
        p.transfer.engines = engines;
        const auto same = cp::reoptimize(p, current, last, duration{6.0});
        CHECK(same.better);
        CHECK_FALSE(cp::reoptimize(p, current, last, duration{5.9}).better);
    }
}

TEST_CASE("operations that are too short for the grid of times don't wait for each other in a cycle") {
    random_numbers random{8};
    std::size_t same = 0;
    for (std::size_t i = 0; i < oracle::random_cases(100); ++i) {
        CAPTURE(i);
        auto p =
            testing::make_random_problem(random, {.ranks = 3, .stages = 5, .microbatches = 4, .cells = 16}).problem;
        p.change_stages([&](auto& c) {
            // Beyond any exact grid, from 1e-6 to 1e9.
            const double scale = random.chance(60) ? 1e-6 / 3.0 : random.chance(50) ? 1e9 / 7.0 : 1.0;
            c.forward = scale * c.forward;
            c.backward_input = scale * c.backward_input;
            c.backward_weight = scale * c.backward_weight;
            if (c.transfer) *c.transfer = {scale * c.transfer->offload, scale * c.transfer->reload};
        });
        const auto current = some_schedule(p);
        if (current.operations.empty()) continue;
        const auto objective = objective_of(p, current);
        const auto some = [](const operation& op) { return op.microbatch.position() == 0; };
        same += cp::reoptimize(p, current, some, objective).better ? 1 : 0;
        const auto found = cp::reoptimize(p, current, everything, 0.9 * objective, {.conflicts = 100});
        if (found.better) CHECK(objective_of(p, *found.better) <= 0.9 * objective * (1.0 + 1e-6));
    }
    CHECK(same > oracle::random_cases(50));
}

TEST_CASE("it stops on request, before the search as well, and then claims nothing") {
    random_numbers random{7};
    const auto p =
        testing::make_random_problem(random, {.ranks = 4, .stages = 4, .microbatches = 8, .cells = 32}).problem;
    const auto current = some_schedule(p);
    REQUIRE_FALSE(current.operations.empty());
    std::size_t most_asked = 0;
    for (std::size_t last = 1; last < 40; ++last) {
        CAPTURE(last);
        std::size_t asked = 0;
        const auto found = cp::reoptimize(p, current, everything, 0.999 * objective_of(p, current),
                                          {.conflicts = 0, .stop = [&] { return ++asked >= last; }});
        if (asked >= last) CHECK_FALSE(found.settled);
        CHECK_FALSE(found.better);
        most_asked = std::max(most_asked, asked);
    }
    // Building the model for four ranks asks this many times.
    CHECK(most_asked > 10);
}
