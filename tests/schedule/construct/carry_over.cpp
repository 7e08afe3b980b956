#include "optpipe/schedule/construct/carry_over.hpp"

#include "optpipe/pipeline/sequences.hpp"
#include "optpipe/schedule/time/evaluate.hpp"
#include "optpipe/schedule/time/measure.hpp"
#include "oracle/random_cases.hpp"
#include "oracle/random_problem.hpp"
#include "oracle/random_schedule.hpp"
#include "oracle/reference_checker.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

using namespace optpipe;

namespace {

/// The problem with its sequences in another order.
problem with_sequences(const problem& p, const std::vector<std::vector<microbatch>>& sequences) {
    auto other = p;
    std::vector<cost_factors> factors;
    std::vector<std::size_t> numbers;
    for (const stage s : p.graph.all_stages())
        for (const auto& slices : sequences)
            for (const microbatch m : slices)
                factors.push_back(p.microbatches.factors(s, m));
    for (std::size_t i = 0; i < sequences.size(); ++i)
        numbers.insert(numbers.end(), sequences[i].size(), i);
    other.microbatches.set_factors_by_stage(factors, p.graph.microbatches());
    other.microbatches.set_sequences(numbers);
    return other;
}

/// Factors that differ from microbatch to microbatch, so that each has a rank of its own.
void draw_factors(random_numbers& random, problem& p) {
    std::vector<cost_factors> factors;
    for (const microbatch m : p.graph.all_microbatches()) {
        const double factor = 0.5 + random.share() + 0.001 * static_cast<double>(m.value());
        factors.push_back({factor, factor, factor, factor, factor});
    }
    p.microbatches.set_factors(factors);
}

problem random_draw(random_numbers& random, std::size_t slice_percent) {
    auto p = oracle::make_random_problem(random, {.microbatches = 8, .cells = 24, .storage_percent = 30}).problem;
    if (random.chance(slice_percent)) {
        std::vector<std::size_t> numbers(p.graph.microbatches());
        for (std::size_t m = 1; m < numbers.size(); ++m)
            numbers[m] = numbers[m - 1] + random.below(2);
        p.microbatches.set_sequences(numbers);
    }
    draw_factors(random, p);
    for (auto& limit : p.host_memory_limit)
        limit = memory_size::unlimited();
    for (auto& limit : p.memory_limit)
        limit = memory_size::unlimited();
    return p;
}

schedule schedule_of(random_numbers& random, const problem& p) {
    auto timed = time_order(p, oracle::random_order(random, p));
    REQUIRE(timed);
    return *std::move(timed);
}

} // namespace

TEST_CASE("a plan follows its sequences to wherever they are in the list") {
    constexpr std::uint64_t seed = 21;
    for (std::uint64_t i = 0; i < oracle::random_cases(200); ++i) {
        CAPTURE(seed);
        CAPTURE(i);
        random_numbers random{seed * 1'000'003 + i};
        const auto p = random_draw(random, 50);
        const auto known = schedule_of(random, p);
        auto sequences = sequences_of(p);
        std::rotate(sequences.begin(), sequences.begin() + static_cast<std::ptrdiff_t>(sequences.size() / 2),
                    sequences.end());
        const auto other = with_sequences(p, sequences);
        drawn_order draw{{}, std::vector<double>(p.graph.microbatches(), 0.0), {}};
        for (const auto& timed : known.operations)
            if (timed.op.kind == operation_kind::forward || is_gradient(timed.op.kind) ||
                is_weight_gradient(timed.op.kind))
                draw.work[timed.op.microbatch.position()] += (timed.end - timed.start).value();
        for (const auto& slices : sequences_of(p))
            draw.slices.push_back(slices.size());
        const auto sorted = order_of(known);
        draw.operations.assign(sorted.operations.begin(), sorted.operations.end());
        const auto carried = carry_over(other, draw);
        REQUIRE(carried);
        const auto timed = time_order(other, *carried);
        REQUIRE(timed);
        CHECK(oracle::judge(other, *timed).text() == "");
        if (!any_storage_option(p, [](const storage_option& o) { return o.backward_extra > duration{}; }))
            CHECK(objective_of(other, *timed).value() <= doctest::Approx(objective_of(p, known).value()));
    }
}

TEST_CASE("a plan of another draw fits the memory of this one") {
    constexpr std::uint64_t seed = 22;
    std::size_t too_large = 0;
    std::size_t carried = 0;
    const auto cases = oracle::random_cases(400);
    for (std::uint64_t i = 0; i < cases; ++i) {
        CAPTURE(seed);
        CAPTURE(i);
        random_numbers random{seed * 1'000'003 + i};
        const auto p = random_draw(random, 0);
        const auto known = schedule_of(random, p);
        auto next = p;
        draw_factors(random, next);
        const auto peaks = measure(p, known).peak_memory;
        for (const rank r : p.graph.all_ranks())
            next.memory_limit[r] = peaks[r];
        too_large += retime(next, known) ? 0 : 1;
        const auto found = carry_over(next, known);
        if (!found) continue;
        ++carried;
        CHECK(oracle::judge(next, *found).text() == "");
        if (const auto as_is = retime(next, known)) CHECK(objective_of(next, *found) <= objective_of(next, *as_is));
    }
    if (cases < 400) return;
    CHECK(too_large > 100);
    CHECK(carried > cases / 2);
}

TEST_CASE("slices are matched by their place, whatever their number") {
    const stage_costs unit{duration{1.0}, duration{1.0}, duration{1.0}, memory_size{1.0}, memory_size{0.5}, {}};
    problem p{to_any_graph(graph<dynamic, dynamic>{2, 6}), per_stage<stage_costs>(2, unit)};
    p.microbatches.set_sequences(std::vector<int>{0, 0, 0, 1, 2, 2});
    random_numbers random{1};
    const auto known = schedule_of(random, p);
    const auto sorted = order_of(known);
    const drawn_order draw{{sorted.operations.begin(), sorted.operations.end()}, {1, 1, 1, 3, 1, 2}, {3, 1, 2}};
    for (const auto& numbers : {std::vector<int>{0, 0, 0, 0, 1, 2}, {0, 1, 1, 2, 2, 2}, {0, 0, 1, 1, 2, 2}}) {
        auto other = p;
        other.microbatches.set_sequences(numbers);
        const auto carried = carry_over(other, draw);
        REQUIRE(carried);
        const auto timed = time_order(other, *carried);
        REQUIRE(timed);
        CHECK(oracle::judge(other, *timed).text() == "");
    }
    auto fewer = p;
    fewer.microbatches.set_sequences(std::vector<int>{0, 0, 0, 1, 1, 1});
    CHECK_FALSE(carry_over(fewer, draw));
}

TEST_CASE("an order that isn't one is refused for the same reason as by retime") {
    random_numbers random{7};
    auto p = random_draw(random, 0);
    auto known = schedule_of(random, p);
    auto next = p;
    draw_factors(random, next);
    known.operations.pop_back();
    REQUIRE_FALSE(carry_over(next, known));
    CHECK(describe(carry_over(next, known).why()) == describe(retime(next, known).why()));
    known.operations.front().op.storage = 99;
    REQUIRE_FALSE(carry_over(next, known));
    CHECK(describe(carry_over(next, known).why()) == describe(retime(next, known).why()));
}
