#include "optpipe/schedule/builders/adaptive.hpp"

#include "optpipe/pipeline/make_problem.hpp"
#include "optpipe/schedule/time/evaluate.hpp"
#include "optpipe/schedule/time/measure.hpp"
#include "optpipe/schedule/time/simulate.hpp"
#include "optpipe/schedule/time/validate.hpp"
#include "oracle/exhaustive.hpp"
#include "oracle/random_cases.hpp"
#include "oracle/random_problem.hpp"
#include "oracle/reference_checker.hpp"
#include "oracle/spelled.hpp"

#include <doctest/doctest.h>

#include <cstdint>
#include <optional>
#include <string>

namespace {

using optpipe::duration;
using optpipe::memory_size;
using optpipe::objective_kind;
using optpipe::order;
using optpipe::problem;
using optpipe::rank;
using optpipe::stage;
using optpipe::transfer_times;
using namespace optpipe::literals;

static_assert(optpipe::adaptive.name == "adaptive");
constexpr auto tiny = make_problem(optpipe::graph<2, 2>{}, optpipe::unit_memory{}, 2_gb);
constexpr auto tiny_schedule = *simulate(tiny, *optpipe::adaptive_builder<>{{}, 1}(tiny));
static_assert(is_valid(tiny, tiny_schedule));
static_assert(measure(tiny, tiny_schedule).makespan <= 9_ms);
static_assert(measure(tiny, tiny_schedule).peak_memory[rank{0}] <= 2_gb);

/// A fraction of the usual effort; the tested properties don't depend on it.
constexpr optpipe::adaptive_builder<> quick{{}, 20'000};

optpipe::schedule timed(const problem& p, const order& given) {
    const auto result = time_order(p, given);
    REQUIRE_MESSAGE(result.has_value(), describe(result.why()));
    return *result;
}

void check_no_worse(const problem& p, duration value, const optpipe::outcome<order>& other) {
    if (!other || !simulate(p, *other)) return;
    CHECK(value <= objective_of(p, timed(p, *other)) * (1.0 + 1e-9));
}

} // namespace

TEST_CASE("whatever the problem: valid, no worse than 1F1B or GPipe, and the same each time") {
    constexpr std::uint64_t seed = 81;
    std::uint64_t tight = 0;
    std::uint64_t offloading = 0;
    for (std::uint64_t i = 0; i < oracle::random_cases(500); ++i) {
        CAPTURE(seed);
        CAPTURE(i);
        oracle::random_numbers random{seed * 1'000'003 + i};
        const auto p =
            oracle::make_random_problem(random, {.ranks = 8, .stages = 16, .microbatches = 16, .cells = 96}).problem;
        const auto built = quick(p);
        REQUIRE_MESSAGE(built.has_value(), describe(built.why()));
        const auto s = timed(p, *built);
        INFO(oracle::spell(s));
        const auto found = validate(p, s);
        CHECK_MESSAGE(found.empty(), found.front().text());
        CHECK(oracle::judge(p, s).text() == "");
        const auto value = objective_of(p, s);
        check_no_worse(p, value, optpipe::gpipe(p));
        check_no_worse(p, value, optpipe::one_forward_one_backward(p));
        check_no_worse(p, value, one_at_a_time(p));
        tight += !simulate(p, *optpipe::gpipe(p)).has_value() ? 1 : 0;
        offloading += measure(p, s).offloads > 0 ? 1 : 0;
        if (i % 4 == 0) CHECK(quick(p)->operations == built->operations);
    }
    CHECK(tight > oracle::random_cases(200));
    CHECK(offloading > oracle::random_cases(50));
}

TEST_CASE("small problems are planned as well as they can be, nearly always") {
    constexpr std::uint64_t seed = 82;
    std::uint64_t proven = 0;
    std::uint64_t best_of_all = 0;
    for (std::uint64_t i = 0; i < oracle::random_cases(300); ++i) {
        CAPTURE(seed);
        CAPTURE(i);
        oracle::random_numbers random{seed * 1'000'003 + i};
        const auto given = oracle::make_random_problem(random, {.cells = 6});
        const auto& p = given.problem;
        const auto best = oracle::exhaustive_optimum(p, given.grid, 20'000);
        if (!best.proven) continue;
        ++proven;
        const auto value = objective_of(p, timed(p, *quick(p))).value();
        CHECK(value >= *best.objective * (1.0 - 1e-9));
        best_of_all += value <= *best.objective * (1.0 + 1e-9) ? 1 : 0;
    }
    CHECK(proven > oracle::random_cases(270));
    CHECK(best_of_all > 9 * proven / 10);
}

TEST_CASE("a refusal is right") {
    constexpr std::uint64_t seed = 83;
    std::uint64_t refused = 0;
    std::uint64_t planned = 0;
    for (std::uint64_t i = 0; i < oracle::random_cases(400); ++i) {
        CAPTURE(seed);
        CAPTURE(i);
        oracle::random_numbers random{seed * 1'000'003 + i};
        auto given =
            oracle::make_random_problem(random, {.stages = 6, .microbatches = 2, .cells = 6, .offloading_percent = 80});
        auto& p = given.problem;
        // Near the memory of one microbatch, above or below it.
        for (const rank r : p.graph.all_ranks()) {
            p.memory_limit[r] = (0.25 * static_cast<double>(random.between(2, 6))) * least_memory(p, r).needed;
            if (random.chance(30))
                p.host_memory_limit[r] = memory_size{0.25 * static_cast<double>(random.between(0, 12))};
        }
        const auto built = quick(p);
        const auto best = oracle::exhaustive_optimum(p, given.grid, 20'000);
        if (!best.proven) continue;
        CHECK(built.has_value() == best.objective.has_value());
        bool enough = true;
        for (const rank r : p.graph.all_ranks())
            enough = enough && least_memory(p, r).lower_bound <= p.memory_limit[r];
        if (best.objective) CHECK(enough);
        (built ? planned : refused) += 1;
        if (built) continue;
        const auto& why = built.why();
        CHECK(why.reason == optpipe::refusal_reason::over_memory);
        CHECK(why.limit == p.memory_limit[why.rank]);
        CHECK(why.needed > why.limit);
        // The memory without which there is no schedule or, if that isn't proven infeasible, a sufficient one.
        const auto least = least_memory(p, why.rank);
        CHECK((why.needed == least.lower_bound || why.needed == least.needed));
    }
    CHECK(refused > oracle::random_cases(100));
    CHECK(planned > oracle::random_cases(50));
}

TEST_CASE("where every option moves more than the host takes, the refusal says so") {
    problem p{to_any_graph(optpipe::graph<2, 3>{}), optpipe::per_stage<optpipe::stage_costs>(2)};
    p.change_stages(
        [&](auto& each) { each = {duration{1}, duration{1}, duration{1}, memory_size{2}, memory_size{1}, {}}; });
    for (auto& options : p.storage)
        options = {{"out", memory_size{2}, {}, {}, memory_size{1.5}, transfer_times{duration{1}, duration{1}}}};
    p.host_memory_limit[rank{1}] = memory_size{1};
    const auto built = optpipe::adaptive(p);
    REQUIRE_FALSE(built);
    CHECK(optpipe::describe(built.why()).ends_with("rank 1 needs 1.5 of host memory, its limit is 1"));
}

TEST_CASE("problems in which stashes alternate on a small host are never called infeasible") {
    // No fixed set of offloaded stashes fits in 11: 0 is offloaded on the way up, 1 on the way down.
    optpipe::per_stage<optpipe::stage_costs> costs(5);
    const double activations[] = {1, 1, 10, 3, 9};
    for (const stage s : costs.indices()) {
        const memory_size a{activations[s.position()]};
        costs[s] = {1_ms, 1_ms, 1_ms, a, 0.5 * a, transfer_times{1_ms, 1_ms}};
    }
    problem p{optpipe::any_graph{1, 1, optpipe::placement::map<>{optpipe::per_stage<rank>(5)}}, costs};
    p.memory_limit[rank{0}] = 11_gb;
    p.host_memory_limit[rank{0}] = 13_gb;
    const auto best = oracle::exhaustive_optimum(p, 1.0, 2'000'000);
    REQUIRE(best.objective.has_value());
    CHECK(oracle::judge(p, best.schedule).text() == "");
    CHECK(validate(p, best.schedule).empty());
    CHECK(least_memory(p, rank{0}).needed == 12_gb);
    CHECK(least_memory(p, rank{0}).lower_bound <= 11_gb);
    const auto built = quick(p);
    if (!built) CHECK(built.why().sentence == "found no schedule, though none is proven infeasible");
}

TEST_CASE("what the policy says is done") {
    auto p = to_problem(make_problem(optpipe::graph<2, 4>{}, optpipe::unit_memory{}));
    p.change_stages([&](auto& c) { c.transfer = transfer_times{0.25_ms, 0.25_ms}; });
    const auto offloads = [&]<class Policy>(const Policy& policy) {
        const auto built = optpipe::adaptive_builder<Policy>{policy, 20'000}(p);
        REQUIRE(built.has_value());
        const auto s = timed(p, *built);
        CHECK(validate(p, s).empty());
        return measure(p, s).offloads;
    };
    CHECK(offloads(optpipe::offload::never{}) == 0);
    for (auto& limit : p.memory_limit)
        limit = 1_gb;
    CHECK(offloads(optpipe::offload::never{}) == 0);
    CHECK(offloads(optpipe::offload::solver_decides{}) > 0);
}

TEST_CASE("one at a time fits what one microbatch needs") {
    constexpr std::uint64_t seed = 84;
    for (std::uint64_t i = 0; i < oracle::random_cases(300); ++i) {
        CAPTURE(seed);
        CAPTURE(i);
        oracle::random_numbers random{seed * 1'000'003 + i};
        auto p =
            oracle::make_random_problem(random, {.ranks = 4, .stages = 10, .microbatches = 6, .cells = 40}).problem;
        for (const rank r : p.graph.all_ranks())
            p.memory_limit[r] = least_memory(p, r).needed;
        const auto s = timed(p, one_at_a_time(p));
        CHECK(validate(p, s).empty());
        CHECK(oracle::judge(p, s).text() == "");
    }
}
