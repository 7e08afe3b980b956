// Random problems with pairs, judged by `validate` and `measure`, and by the independent reference checker.
#include "optpipe/pipeline/validate_problem.hpp"
#include "optpipe/schedule/bounds/graph_bound.hpp"
#include "optpipe/schedule/construct/merge_pairs.hpp"
#include "optpipe/schedule/pair.hpp"
#include "optpipe/schedule/time/measure.hpp"
#include "optpipe/schedule/time/simulate.hpp"
#include "optpipe/schedule/time/validate.hpp"
#include "oracle/pair_optimum.hpp"
#include "oracle/random_cases.hpp"
#include "oracle/random_pairs.hpp"
#include "oracle/random_problem.hpp"
#include "oracle/random_schedule.hpp"
#include "oracle/reference_checker.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace {

using namespace optpipe;

constexpr std::uint64_t seed = 11;

std::string faults_of(const problem& p, const schedule& s) {
    std::string text;
    for (const auto& f : validate(p, s))
        text += f.text() + "; ";
    return text;
}

/// Checks that both readings find the schedule valid and measure the same, and that no bound is above it.
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
}

} // namespace

TEST_CASE("schedules with pairs are valid by two readings of the rules") {
    std::size_t with_pairs = 0;
    const auto cases = oracle::random_cases(300);
    for (std::uint64_t i = 0; i < cases; ++i) {
        oracle::random_numbers random{seed * 1'000'003 + i};
        const auto p = oracle::with_random_pairs(
            random, oracle::make_random_problem(
                        random, {.cells = 12, .storage_percent = i % 3 == 0 ? 100U : 0U, .graph_percent = 50})
                        .problem);
        CAPTURE(seed);
        CAPTURE(i);
        REQUIRE(validate(p).empty());
        const auto drawn = simulate(p, oracle::random_order(random, p));
        if (!drawn) continue; // over a host limit
        const auto s = merge_pairs(p, *drawn);
        check_valid(p, s);
        CHECK(objective_of(p, s).value() <= objective_of(p, *drawn).value() * (1.0 + 1e-9));
        const auto again = simulate(p, order_of(s));
        REQUIRE_MESSAGE(again, describe(again.why()));
        CHECK(last_end(*again).value() <= last_end(s).value() * (1.0 + 1e-9));
        check_valid(p, *again);
        auto late = *again;
        postpone_warm_up(p, late);
        check_valid(p, late);
        with_pairs += has_pairs(s.operations) ? 1 : 0;
    }
    if (cases >= 300) CHECK(with_pairs > 30);
}

TEST_CASE("both readings find the same faults in schedules with pairs") {
    std::size_t faulty = 0;
    const auto cases = oracle::random_cases(300);
    for (std::uint64_t i = 0; i < cases; ++i) {
        oracle::random_numbers random{seed * 2'000'003 + i};
        const auto p = oracle::with_random_pairs(random, oracle::make_random_problem(random, {.cells = 8}).problem);
        const auto drawn = simulate(p, oracle::random_order(random, p));
        if (!drawn) continue; // over a host limit
        auto s = merge_pairs(p, *drawn);
        auto& one = s.operations[random.below(s.operations.size())];
        auto& other = s.operations[random.below(s.operations.size())];
        switch (random.below(4)) {
        case 0: one.op.is_paired = !one.op.is_paired; break;
        case 1: std::swap(one.op.microbatch, other.op.microbatch); break;
        case 2: one.op.kind = all_operation_kinds[random.below(4)]; break;
        default: one.start += duration{1.0}, one.end += duration{1.0};
        }
        CAPTURE(seed);
        CAPTURE(i);
        const auto found = faults_of(p, s);
        CAPTURE(found);
        CHECK((found.empty()) == oracle::judge(p, s).valid());
        faulty += found.empty() ? 0 : 1;
    }
    if (cases >= 300) CHECK(faulty > 100);
}

TEST_CASE("no bound is above the optimum with pairs") {
    std::size_t reached = 0;
    std::size_t helped = 0;
    const auto cases = oracle::random_cases(300);
    for (std::uint64_t i = 0; i < cases; ++i) {
        oracle::random_numbers random{seed * 3'000'003 + i};
        auto p = oracle::make_random_problem(random, {.cells = 3, .graph_percent = 50}).problem;
        for (const stage s : p.graph.all_stages()) {
            const std::vector<storage_option> keep{keep_stash(p.costs[s])};
            p.set_storage(s, keep);
        }
        for (const rank r : p.graph.all_ranks())
            p.memory_limit[r] = memory_size::unlimited();
        p.objective = objective_kind::makespan;
        p = oracle::with_random_pairs(random, std::move(p));
        CAPTURE(seed);
        CAPTURE(i);
        const double optimum = oracle::pair_optimum{p}.makespan();
        const double bound = graph_bound(p).value();
        CHECK(bound <= optimum * (1.0 + 1e-9));
        reached += bound >= optimum * (1.0 - 1e-9) ? 1 : 0;
        auto without = p;
        without.overlaps = {};
        helped += oracle::pair_optimum{without}.makespan() > optimum * (1.0 + 1e-9) ? 1 : 0;
    }
    if (cases >= 300) CHECK(reached > 10);
    if (cases >= 300) CHECK(helped > 10);
}

TEST_CASE("no bound is above the optimum with pairs, options and memory limits") {
    std::size_t limited = 0;
    std::size_t reached = 0;
    const auto cases = oracle::random_cases(300);
    for (std::uint64_t i = 0; i < cases; ++i) {
        oracle::random_numbers random{seed * 4'000'003 + i};
        auto p = oracle::make_random_problem(random, {.cells = 3, .graph_percent = i % 2 == 0 ? 0U : 60U}).problem;
        p.objective = objective_kind::makespan;
        p = oracle::with_random_pairs(random, oracle::with_random_memory(random, std::move(p)));
        CAPTURE(seed);
        CAPTURE(i);
        const double optimum = oracle::pair_optimum{p}.makespan();
        const double bound = graph_bound(p).value();
        CHECK(bound <= optimum * (1.0 + 1e-9));
        reached += bound >= optimum * (1.0 - 1e-9) ? 1 : 0;
        p.memory_limit[rank{0}] = memory_size::unlimited();
        limited += oracle::pair_optimum{p}.makespan() < optimum * (1.0 - 1e-9) ? 1 : 0;
    }
    if (cases >= 300) CHECK(reached > 10);
    if (cases >= 300) CHECK(limited > 0);
}
