#include "optpipe/schedule/time/measure.hpp"

#include "optpipe/pipeline/make_problem.hpp"
#include "optpipe/schedule/builders/gpipe.hpp"
#include "optpipe/schedule/builders/one_forward_one_backward.hpp"
#include "optpipe/schedule/time/simulate.hpp"
#include "oracle/random_problem.hpp"
#include "oracle/random_schedule.hpp"
#include "oracle/reference_checker.hpp"
#include "oracle/spelled.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <string>
#include <vector>

namespace {

using optpipe::duration;
using optpipe::memory_kind;
using optpipe::memory_size;
using optpipe::objective_kind;
using optpipe::rank;
using optpipe::stage;
using optpipe::transfer_times;
using oracle::spelled_schedule;
using namespace optpipe::literals;

optpipe::problem linear(std::size_t ranks, std::size_t microbatches) {
    const optpipe::graph<optpipe::dynamic, optpipe::dynamic> g{ranks, microbatches};
    const optpipe::stage_costs unit{1_ms, 1_ms, 1_ms, 1_gb, 0.5_gb, {}};
    return make_problem(to_any_graph(g), optpipe::uniform_memory{unit});
}

/// "0:1 2:0.5" is a level of 1 from time 0 on, and of 0.5 from 2 on.
std::string curve(const optpipe::problem& p, const std::string& text, rank r = rank{0},
                  memory_kind which = memory_kind::device) {
    std::string all;
    for (const auto& point : memory_curve(p, spelled_schedule(p, text), r, which))
        all +=
            (all.empty() ? "" : " ") + optpipe::format_number(point.time) + ":" + optpipe::format_number(point.level);
    return all;
}

} // namespace

TEST_CASE("how memory rises and falls") {
    auto p = linear(2, 2);
    p.change_stages([&](auto& c) { c.transfer = transfer_times{2_ms, 3_ms}; });
    CHECK(curve(p, "0F0@0 0B0@5") == "0:1 7:0");
    CHECK(curve(p, "0F0@0 0I0@5 0W0@8") == "0:1 6:0.5 9:0");
    CHECK(curve(p, "0F0@0 0OFFLOAD0@1.5 0RELOAD0@4 0B0@7") == "0:1 3.5:0 4:1 9:0");
    CHECK(curve(p, "0F0@0 0OFFLOAD0@1.5 0RELOAD0@4 0B0@7", rank{0}, memory_kind::host) == "1.5:1 7:0");
    CHECK(curve(p, "0F0@0 0B0@5", rank{0}, memory_kind::host) == "");
    CHECK(curve(p, "0F0@0 0B0@5", rank{1}) == "");
    CHECK(curve(p, "0F0@0 1F0@1 1B0@2 0F1@1 0B0@5", rank{1}) == "1:1 4:0");
    CHECK(optpipe::peak_of({}) == 0_gb);
}

TEST_CASE("at one instant what is freed comes before what is added") {
    const auto p = linear(1, 3);
    CHECK(curve(p, "0F0@0 0B0@1 0F1@3 0B1@4") == "0:1 3:1 6:0");
    const auto touching = spelled_schedule(p, "0F0@0 0B0@1 0F1@3 0B1@4");
    CHECK(peak_of(memory_curve(p, touching, rank{0})) == 1_gb);
    // With a slack, a rounding error later is still the same instant; without slack it isn't.
    const auto rounded = spelled_schedule(p, "0F0@0 0B0@1.0000000001 0F1@3 0B1@4");
    CHECK(peak_of(memory_curve(p, rounded, rank{0})) == 2_gb);
    CHECK(peak_of(memory_curve(p, rounded, rank{0}, memory_kind::device, 1e-6_ms)) == 1_gb);
    CHECK(measure(p, rounded).peak_memory[rank{0}] == 1_gb);
}

TEST_CASE("a computation doesn't begin and end at one instant, however short it is beside the step") {
    auto p = linear(1, 2);
    p.costs[stage{0}].forward = 1e8_ms;
    const auto s = spelled_schedule(p, "0F0@0 0F1@100000000 0B0@200000000 0B1@200000002");
    CHECK(time_slack(p, s) == 0.5_ms);
    CHECK(measure(p, s).peak_memory[rank{0}] == 2_gb);
    CHECK(time_slack(linear(1, 2), spelled_schedule(linear(1, 2), "0F0@0 0B0@1")) == 1e-6 * 3_ms);
}

TEST_CASE("what W needs beyond the activation is held from the start of I") {
    auto p = linear(1, 1);
    for (auto& c : p.costs)
        c.weight_stash = 1.5_gb;
    CHECK(curve(p, "0F0@0 0I0@5 0W0@8") == "0:1 5:1.5 9:0");
    CHECK(curve(p, "0F0@0 0B0@5") == "0:1 7:0");
}

TEST_CASE("makespan, span, load and bubbles") {
    auto p = linear(2, 1);
    p.costs[optpipe::stage{1}].forward = 3_ms;
    const auto s = spelled_schedule(p, "0F0@0 1F0@2 1I0@5 1W0@6 0B0@8");
    auto m = measure(p, s);
    CHECK(m.makespan == 10_ms);
    CHECK(m.span == 10_ms);
    CHECK(m.busy[rank{0}] == 3_ms);
    CHECK(m.busy[rank{1}] == 5_ms);
    CHECK(m.bubble_rate == doctest::Approx(0.5));
    CHECK(m.offloads == 0);
    CHECK(objective_of(p, s) == 10_ms);

    const auto late = spelled_schedule(p, "0F0@4 1F0@5 1I0@8 1W0@9 0B0@9");
    p.objective = objective_kind::span;
    m = measure(p, late);
    CHECK(m.makespan == 11_ms);
    CHECK(m.span == 7_ms);
    CHECK(m.objective == 7_ms);
    CHECK(objective_of(p, late) == 7_ms);
    CHECK(m.bubble_rate == doctest::Approx(2.0 / 7.0));
    p.objective = objective_kind::makespan;
    CHECK(measure(p, late).objective == 11_ms);
    CHECK(objective_of(p, late) == 11_ms);
}

TEST_CASE("1F1B and GPipe are as long as the papers say, and hold as much") {
    for (std::size_t ranks = 1; ranks <= 6; ++ranks)
        for (std::size_t count = 1; count <= 10; ++count) {
            CAPTURE(ranks);
            CAPTURE(count);
            const auto p = linear(ranks, count);
            const duration length{3.0 * static_cast<double>(count + ranks - 1)};
            const auto busy = static_cast<double>(count) / static_cast<double>(count + ranks - 1);
            const auto one = measure(p, *simulate(p, optpipe::one_forward_one_backward(p.graph)));
            const auto all = measure(p, *simulate(p, optpipe::gpipe(p.graph)));
            for (const auto& m : {one, all}) {
                CHECK(m.makespan == length);
                CHECK(m.objective == length);
                CHECK(m.bubble_rate == doctest::Approx(1.0 - busy));
            }
            for (const rank r : p.graph.all_ranks()) {
                CHECK(one.peak_memory[r] == memory_size{static_cast<double>(std::min(ranks - r.position(), count))});
                CHECK(all.peak_memory[r] == memory_size{static_cast<double>(count)});
            }
            CHECK(peak_stash(optpipe::one_forward_one_backward(p.graph)) == std::min(ranks, count));
            CHECK(peak_stash(optpipe::gpipe(p.graph)) == count);
        }
}

TEST_CASE("an independent reading of the measures agrees") {
    constexpr std::uint64_t seed = 41;
    for (std::uint64_t i = 0; i < 400; ++i) {
        CAPTURE(seed);
        CAPTURE(i);
        oracle::random_numbers random{seed * 1'000'003 + i};
        const auto given = oracle::make_random_problem(
            random, {.ranks = 4, .stages = 8, .microbatches = 6, .cells = 20, .storage_percent = 50});
        const auto& p = given.problem;
        const auto s = oracle::random_schedule(random, given);
        const auto expected = oracle::judge(p, s);
        REQUIRE(expected.text() == "");
        const auto m = measure(p, s);
        CHECK(m.objective.value() == doctest::Approx(expected.objective));
        CHECK(objective_of(p, s).value() == doctest::Approx(expected.objective));
        CHECK(m.bubble_rate == doctest::Approx(expected.bubble_rate));
        CHECK(m.recompute_rate == doctest::Approx(expected.recompute_rate));
        for (const rank r : p.graph.all_ranks()) {
            CHECK(m.peak_memory[r].value() == doctest::Approx(expected.peak_memory[r.position()]));
            CHECK(m.peak_host_memory[r].value() == doctest::Approx(expected.peak_host_memory[r.position()]));
        }
    }
}

TEST_CASE("recomputation is work, and its share is that of the rank that spends most on it") {
    auto p = linear(2, 1);
    for (const stage s : p.graph.all_stages()) {
        p.storage[s].push_back({"ahead", 0.25_gb, 2_ms, {}, {}, {}});
        p.storage[s].push_back({"inside", 0.25_gb, {}, 1_ms, {}, {}});
    }
    const auto ahead = measure(p, spelled_schedule(p, "0F0:1@0 1F0@1 1B0@2 0RECOMPUTE0:1@1 0B0:1@4"));
    CHECK(ahead.objective == 6_ms);
    CHECK(ahead.busy[rank{0}] == 5_ms);
    CHECK(ahead.recompute_rate == doctest::Approx(2.0 / 5.0));
    CHECK(ahead.bubble_rate == doctest::Approx(1.0 / 6.0));
    CHECK(ahead.recomputes == 1);
    const auto inside = measure(p, spelled_schedule(p, "0F0@0 1F0:2@1 1I0:2@2 1W0:2@4 0B0@4"));
    CHECK(inside.recompute_rate == doctest::Approx(1.0 / 4.0));
    CHECK(inside.busy[rank{1}] == 4_ms);
    CHECK(inside.recomputes == 1);
    CHECK(measure(p, spelled_schedule(p, "0F0@0 1F0@1 1B0@2 0B0@4")).recompute_rate == 0.0);
}

TEST_CASE("a schedule of another pipeline isn't measured") {
    if (!optpipe::contracts_throw()) return;
    const auto p = linear(4, 8);
    const auto wider = linear(32, 8);
    const auto s = *simulate(wider, optpipe::gpipe(wider.graph));
    CHECK_THROWS_WITH_AS(static_cast<void>(measure(p, s)),
                         doctest::Contains("measure: the schedule is of another pipeline"), optpipe::contract_error);
    CHECK_THROWS_WITH_AS(static_cast<void>(objective_of(p, s)),
                         doctest::Contains("objective_of: the schedule is of another pipeline"),
                         optpipe::contract_error);
    const auto longer = linear(4, 9);
    CHECK_THROWS_AS(static_cast<void>(measure(p, *simulate(longer, optpipe::gpipe(longer.graph)))),
                    optpipe::contract_error);
}
