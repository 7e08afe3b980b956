#include <optpipe/schedule/builders/all.hpp>
#include <optpipe/schedule/rules/storage_of_transfers.hpp>
#include <optpipe/schedule/time/evaluate.hpp>
#include <optpipe/schedule/time/noise.hpp>
#include <optpipe/testing/random_problem.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

using namespace optpipe;

namespace {

problem example(std::size_t ranks = 4, std::size_t microbatches = 8) {
    stage_costs costs;
    costs.forward = duration{1.0};
    costs.backward_input = duration{1.2};
    costs.backward_weight = duration{0.8};
    costs.activation = memory_size{1.0};
    costs.transfer = transfer_times{duration{0.7}, duration{0.7}};
    problem p{to_any_graph(graph<dynamic, dynamic>{ranks, microbatches}), per_stage<stage_costs>(ranks, costs)};
    p.p2p = hop_times<>{duration{0.25}};
    for (auto& limit : p.memory_limit)
        limit = memory_size{3.0};
    return p;
}

std::map<operation, duration> durations_in(const schedule& s) {
    std::map<operation, duration> found;
    for (const auto& [op, start, end] : s.operations)
        found[op] = end - start;
    return found;
}

/// The mean and the standard deviation of durations relative to the planned ones.
std::pair<double, double> deviation_of(const std::vector<double>& ratios) {
    double sum = 0.0;
    double squares = 0.0;
    for (const double r : ratios) {
        sum += r;
        squares += r * r;
    }
    const auto n = static_cast<double>(ratios.size());
    return {sum / n, std::sqrt(squares / n - sum / n * (sum / n))};
}

} // namespace

TEST_CASE("without noise a step is what simulate gives, with offloading and with random problems too") {
    for (const auto objective : {objective_kind::makespan, objective_kind::span}) {
        auto p = example();
        p.objective = objective;
        for_each_builder([&](const auto& build) {
            const auto built = build(p);
            if (!built) return;
            const auto timed = simulate(p, *built);
            if (!timed) return;
            CAPTURE(build.name);
            const auto ran = simulate(p, *built, noise_model{}, 3);
            REQUIRE(ran.operations.size() == timed->operations.size());
            if (objective == objective_kind::makespan)
                CHECK(std::equal(ran.operations.begin(), ran.operations.end(), timed->operations.begin()));
            else
                CHECK(objective_of(p, ran) <= objective_of(p, *timed));
        });
    }
}

TEST_CASE("the same seed gives the same step, other seeds and steps others") {
    const auto p = example();
    const auto given = *adaptive(p);
    const noise_model noise{.spread = 0.1, .rank_correlation = 0.5};
    auto other = noise;
    other.seed = 2;
    CHECK(simulate(p, given, noise, 0).operations[5] == simulate(p, given, noise, 0).operations[5]);
    CHECK(simulate(p, given, noise, 0).operations[5] != simulate(p, given, noise, 1).operations[5]);
    CHECK(simulate(p, given, noise, 0).operations[5] != simulate(p, given, other, 0).operations[5]);
    // The same on every platform.
    const auto first = step_noise{noise, 0}(p, forward(stage{0}, microbatch{0}));
    CHECK(first.value() == doctest::Approx(1.2395527065621943).epsilon(1e-12));
}

TEST_CASE("an operation takes the same time in whatever order, and a full backward as long as its halves") {
    const auto p = example();
    const noise_model noise{.spread = 0.2, .rank_correlation = 0.3, .slow_link_chance = 0.2, .straggler_chance = 0.2};
    for (std::uint64_t step = 0; step < 5; ++step) {
        const auto split = durations_in(simulate(p, *adaptive(p), noise, step));
        auto full_problem = p;
        full_problem.split_backward = false;
        const auto full = durations_in(simulate(full_problem, *adaptive(full_problem), noise, step));
        std::size_t compared = 0;
        for (const auto& [op, took] : full) {
            if (op.kind == operation_kind::forward) CHECK(split.at(op).value() == doctest::Approx(took.value()));
            const auto input = split.find(sibling(op, operation_kind::backward_input));
            if (op.kind != operation_kind::backward || input == split.end()) continue;
            const auto halves = input->second + split.at(sibling(op, operation_kind::backward_weight));
            CHECK(took.value() == doctest::Approx(halves.value()));
            ++compared;
        }
        CHECK(compared > 0);
    }
}

TEST_CASE("the message of a full backward is that of its input gradient") {
    const auto p = example();
    const noise_model noise{.spread = 0.2, .slow_link_chance = 0.2};
    const step_noise now{noise, 0};
    const auto back = p.hop(stage{1}, stage{0});
    for (const microbatch m : p.graph.all_microbatches()) {
        const auto sent = now.message(p, backward(stage{1}, m), stage{0}, back);
        CHECK(sent == now.message(p, backward_input(stage{1}, m), stage{0}, back));
        CHECK(sent != now.message(p, forward(stage{1}, m), stage{0}, back));
    }
}

TEST_CASE("durations have the mean, spread and correlation of the model") {
    const auto p = example();
    const auto given = *adaptive(p);
    const auto planned = durations_in(*simulate(p, given));
    for (const double correlation : {0.0, 0.5, 1.0}) {
        const noise_model noise{.spread = 0.1, .rank_correlation = correlation};
        std::vector<double> ratios;
        std::vector<double> differences; // between two operations of one rank
        for (std::uint64_t step = 0; step < 3000; ++step) {
            const step_noise now{noise, step};
            const auto ratio = [&](const operation& op) { return now(p, op) / duration_of(p, op); };
            const auto one = ratio(forward(stage{1}, microbatch{2}));
            const auto other = ratio(backward_input(stage{1}, microbatch{5}));
            ratios.push_back(one);
            differences.push_back(one - other);
        }
        CAPTURE(correlation);
        CHECK(deviation_of(ratios).first == doctest::Approx(1.0).epsilon(0.01));
        CHECK(deviation_of(ratios).second == doctest::Approx(0.1).epsilon(0.05));
        const double expected = 0.1 * std::sqrt(2.0 * (1.0 - correlation));
        CHECK(std::abs(deviation_of(differences).second - expected) < 0.01);
    }
    CHECK(planned.size() == given.operations.size());
}

TEST_CASE("links and stragglers are slow for a whole step, as often as the model says") {
    const auto p = example();
    const noise_model noise{
        .slow_link_chance = 0.25, .slow_link_factor = 3.0, .straggler_chance = 0.1, .straggler_factor = 2.0};
    std::size_t slow_ranks = 0;
    std::size_t slow_messages = 0;
    constexpr std::size_t steps = 4000;
    for (std::uint64_t step = 0; step < steps; ++step) {
        const step_noise now{noise, step};
        const auto first = now(p, forward(stage{0}, microbatch{0})) / duration_of(p, forward(stage{0}, microbatch{0}));
        for (const microbatch m : p.graph.all_microbatches())
            CHECK(now(p, forward(stage{0}, m)) / duration{1.0} == first);
        const bool straggles = first > 1.5;
        slow_ranks += straggles ? 1 : 0;
        const auto moved = now(p, with_implied_storage(p, offload_of(stage{0}, microbatch{1}))) / duration{0.7} / first;
        CHECK((std::abs(moved - 1.0) < 1e-9 || std::abs(moved - 3.0) < 1e-9));
        slow_messages +=
            now.message(p, forward(stage{0}, microbatch{0}), stage{1}, p.hop(stage{0}, stage{1})) > duration{0.5} ? 1
                                                                                                                  : 0;
    }
    CHECK(std::abs(static_cast<double>(slow_ranks) / steps - 0.1) < 0.02);
    CHECK(std::abs(static_cast<double>(slow_messages) / steps - 0.25) < 0.03);
}

TEST_CASE("memory and lanes hold under noise") {
    const auto p = example();
    const noise_model noise{.spread = 0.3, .rank_correlation = 0.2, .slow_link_chance = 0.3};
    const auto given = *adaptive(p);
    for (std::uint64_t step = 0; step < 20; ++step) {
        const auto ran = simulate(p, given, noise, step);
        for (const rank r : p.graph.all_ranks())
            CHECK(measure(p, ran).peak_memory[r] <= p.memory_limit[r]);
        for (const auto& own : operations_by_rank(ran)) {
            duration free{};
            for (const auto& [op, start, end] : own) {
                if (is_transfer(op.kind)) continue;
                CHECK(start >= free);
                free = end;
            }
        }
    }
}

TEST_CASE("percentiles are the values that so many don't exceed") {
    std::vector<duration> values;
    for (int i = 20; i > 0; --i)
        values.emplace_back(i);
    CHECK(percentile_of(values, 95.0) == duration{19.0});
    CHECK(percentile_of(values, 100.0) == duration{20.0});
    CHECK(percentile_of(values, 50.0) == duration{10.0});
    CHECK(percentile_of(values, 0.1) == duration{1.0});
    CHECK(percentile_of({duration{3.0}}, 95.0) == duration{3.0});
    CHECK(mean_of(values) == duration{10.5});
    const auto p = example();
    const auto times = step_times(p, *adaptive(p), {.spread = 0.1, .rank_correlation = 0.5}, 200);
    CHECK(times.size() == 200);
    CHECK(mean_of(times) < percentile_of(times, 95.0));
}
