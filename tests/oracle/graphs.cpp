// Random problems of format 3, judged twice: by `validate` and `measure`, and by the independent reference checker.
#include "optpipe/pipeline/validate_problem.hpp"
#include "optpipe/schedule/bounds/graph_bound.hpp"
#include "optpipe/schedule/bounds/holding_area.hpp"
#include "optpipe/schedule/builders/adaptive.hpp"
#include "optpipe/schedule/time/measure.hpp"
#include "optpipe/schedule/time/simulate.hpp"
#include "optpipe/schedule/time/validate.hpp"
#include "oracle/random_cases.hpp"
#include "oracle/random_problem.hpp"
#include "oracle/random_schedule.hpp"
#include "oracle/reference_checker.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <set>
#include <string>
#include <utility>

namespace {

using namespace optpipe;

constexpr std::uint64_t seed = 3;

oracle::random_problem problem_of(std::uint64_t i, oracle::random_numbers& random) {
    return oracle::make_random_problem(random,
                                       {.cells = 12, .storage_percent = i % 3 == 0 ? 100U : 0U, .graph_percent = 100});
}

std::string faults_of(const problem& p, const schedule& s) {
    std::string text;
    for (const auto& f : validate(p, s))
        text += f.text() + "; ";
    return text;
}

/// Checks that a schedule is valid by both readings, that they measure the same, and that no bound is above it.
void check_valid(const problem& p, const schedule& s) {
    CHECK(faults_of(p, s) == "");
    const auto judged = oracle::judge(p, s);
    CHECK(judged.text() == "");
    const auto m = measure(p, s);
    CHECK(m.objective.value() == doctest::Approx(judged.objective));
    CHECK(m.bubble_rate == doctest::Approx(judged.bubble_rate));
    CHECK(m.recompute_rate == doctest::Approx(judged.recompute_rate));
    for (const rank r : p.graph.all_ranks()) {
        CHECK(m.peak_memory[r].value() == doctest::Approx(judged.peak_memory[r.position()]));
        CHECK(m.peak_host_memory[r].value() == doctest::Approx(judged.peak_host_memory[r.position()]));
    }
    CHECK(graph_bound(p).value() <= judged.objective * (1.0 + 1e-9));
    CHECK(holding_area_bound(p).value() <= judged.objective * (1.0 + 1e-9));
}

/// Checks that the schedule's order, timed anew, is never later.
void check_order(const problem& p, const schedule& s) {
    const auto again = simulate(p, order_of(s));
    REQUIRE_MESSAGE(again, describe(again.why()));
    CHECK(last_end(*again).value() <= last_end(s).value() * (1.0 + 1e-9));
}

/// Changes one or two operations at random; what results is seldom valid.
void corrupt(oracle::random_numbers& random, const problem& p, schedule& s, double grid) {
    auto& operations = s.operations;
    auto& one = operations[random.below(operations.size())];
    auto& other = operations[random.below(operations.size())];
    const duration by{grid * static_cast<double>(random.between(1, 40))};
    switch (random.below(7)) {
    case 0: operations.erase(operations.begin() + static_cast<std::ptrdiff_t>(random.below(operations.size()))); break;
    case 1: operations.push_back(one); break;
    case 2: std::swap(one.op.microbatch, other.op.microbatch); break;
    case 3: one.op.kind = all_operation_kinds[random.below(4)]; break;
    case 4:
        one.start += by;
        one.end += by;
        break;
    case 5:
        one.start -= by;
        one.end -= by;
        break;
    default: { // exchanges two forwards of one stage
        const auto moved = other.op;
        for (auto& each : operations)
            if (each.op.kind == operation_kind::forward && moved.kind == each.op.kind && each.op.stage == moved.stage &&
                each.op.storage == moved.storage &&
                p.microbatches.factors(moved.stage, each.op.microbatch).forward ==
                    p.microbatches.factors(moved.stage, moved.microbatch).forward) {
                std::swap(each.op.microbatch, other.op.microbatch);
                break;
            }
    }
    }
}

} // namespace

TEST_CASE("what is drawn is a problem of format 3, of every kind") {
    std::set<std::string> kinds;
    const auto cases = oracle::random_cases(400);
    for (std::uint64_t i = 0; i < cases; ++i) {
        oracle::random_numbers random{seed * 1'000'003 + i};
        const auto p = problem_of(i, random).problem;
        CAPTURE(i);
        const auto found = validate(p);
        REQUIRE_MESSAGE(found.empty(), found.front().text());
        if (!p.graph.is_chain()) kinds.insert("edges");
        if (!p.groups.empty()) kinds.insert("group");
        if (p.microbatches.has_slices()) kinds.insert("slices");
        if (p.microbatches.has_factors()) kinds.insert(p.microbatches.is_by_stage() ? "factors by stage" : "factors");
        for (const stage s : p.graph.all_stages())
            p.graph.for_each_edge_out_of(s, [&](const edge& e) {
                if (e.held > memory_size{}) kinds.insert("held");
                if (e.size == 0.0) kinds.insert("no size");
            });
        for (const auto& c : p.costs) {
            if (c.gradients == gradient_kind::input) kinds.insert("frozen weights");
            if (c.gradients == gradient_kind::none) kinds.insert("frozen");
            if (c.kv > memory_size{}) kinds.insert("keys and values");
        }
    }
    if (cases >= 400) CHECK(kinds.size() == 10);
}

TEST_CASE("schedules of graphs are valid by two readings of the rules") {
    for (std::uint64_t i = 0; i < oracle::random_cases(400); ++i) {
        oracle::random_numbers random{seed * 1'000'003 + i};
        const auto given = problem_of(i, random);
        const auto& p = given.problem;
        CAPTURE(seed);
        CAPTURE(i);
        for (int k = 0; k < 3; ++k) {
            const auto drawn = simulate(p, oracle::random_order(random, p));
            REQUIRE_MESSAGE(drawn, describe(drawn.why()));
            auto s = *drawn;
            check_valid(p, s);
            check_order(p, s);
            auto late = s;
            postpone_warm_up(p, late);
            check_valid(p, late);
            oracle::loosen(random, s, given.grid);
            check_valid(p, s);
            check_order(p, s);
        }
        const auto built = adaptive_builder<>{.effort = 1}(p);
        REQUIRE_MESSAGE(built, describe(built.why()));
        const auto s = simulate(p, *built);
        REQUIRE(s);
        check_valid(p, *s);
    }
}

TEST_CASE("corrupted schedules of graphs are refused by both readings") {
    std::size_t refused = 0;
    const auto cases = oracle::random_cases(2000);
    for (std::uint64_t i = 0; i < cases; ++i) {
        oracle::random_numbers random{seed * 1'000'003 + i};
        const auto given = problem_of(i, random);
        const auto& p = given.problem;
        CAPTURE(seed);
        CAPTURE(i);
        const auto drawn = simulate(p, oracle::random_order(random, p));
        REQUIRE(drawn);
        auto s = *drawn;
        corrupt(random, p, s, given.grid);
        const auto judged = oracle::judge(p, s);
        INFO(judged.text() << " / " << faults_of(p, s));
        CHECK(validate(p, s).empty() == judged.valid());
        refused += judged.valid() ? 0 : 1;
    }
    CHECK(refused > cases / 2);
}
