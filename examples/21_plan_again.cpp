// Example 21: from measured steps to a new plan.
//
// A plan is made with guessed costs. Training measures its steps; here the measurements are made up, from costs that
// the planner doesn't know. The profile says what has drifted, and the problem with the measured costs is planned
// again: at once, or on a thread of its own while training goes on. Finally, the example plans steps whose microbatches
// differ.

#include <optpipe/pipeline.hpp>
#include <optpipe/planner.hpp>
#include <optpipe/schedule.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <iostream>
#include <random>
#include <utility>
#include <vector>

namespace {

using namespace optpipe;
using namespace optpipe::literals;

problem guessed_problem() {
    const stage_costs guess{10_ms, 10_ms, 10_ms, memory_size{1}, memory_size{0.5}, transfer_times{4_ms, 4_ms}};
    auto p = to_problem(make_problem(graph<4, 8>{}, uniform_memory{guess}, memory_size{3}));
    p.time_unit = "ms";
    return p;
}

/// A step as it runs: in the order of the plan, but stage 2 is slower than guessed, and durations vary a little from
/// step to step.
schedule measured_step(const problem& guessed, const schedule& plan, std::size_t step) {
    auto real = guessed;
    const double pace = 1.0 + 0.001 * static_cast<double>(step % 5);
    for (auto& costs : real.costs)
        costs.forward = pace * costs.forward;
    real.costs[stage{2}].backward_input = 17_ms;
    return *retime(real, plan);
}

/// Packed documents of random lengths. Attention grows with the squares of the lengths, all else with their sum.
problem packed_problem(problem p, std::mt19937& random) {
    std::uniform_real_distribution<double> length{0.1, 0.6};
    std::vector<cost_factors> factors;
    for (std::size_t m = 0; m < p.graph.microbatches(); ++m) {
        double squares = 0.0;
        for (double left = 1.0; left > 0.0;) {
            const double next = std::min(left, length(random));
            squares += next * next;
            left -= next;
        }
        const double attention = 0.4 + 1.5 * squares;
        factors.push_back({.forward = attention, .backward_input = attention});
    }
    p.microbatches.set_factors(factors);
    return p;
}

/// Plans three steps, each from the previous plan and within 50 ms. Returns whether all have plans, and the last plan
/// is valid.
bool plans_packed_steps(const problem& p) {
    std::mt19937 random{1};
    auto draw = packed_problem(p, random);
    auto planned = plan(draw, {.time_limit = std::chrono::milliseconds{500}});
    for (int step = 1; step <= 3 && planned; ++step) {
        draw = packed_problem(p, random);
        planned = plan(draw, {.time_limit = std::chrono::milliseconds{50}, .start = planned->schedule});
        if (planned) std::cout << "packed step " << step << ": " << planned->objective.value() << " ms\n";
    }
    return planned && validate(draw, planned->schedule).empty();
}

} // namespace

int main() {
    const auto p = guessed_problem();
    const auto first = plan(p);
    if (!first) return std::cout << describe(first.why()) << '\n', 1;

    // Measure: each step as a schedule, in the units of the problem.
    cost_profile profile;
    for (std::size_t step = 0; step < 20; ++step)
        profile.add(p, measured_step(p, first->schedule, step));

    // Compare: which costs differ from those that the plan assumes, beyond the noise?
    const auto drifted = drift(p, profile);
    for (const auto& each : drifted)
        std::cout << describe(each) << '\n';
    if (drifted.empty()) return 1;

    // Plan again, from the plan in use with its new times.
    const auto updated = with_measured_costs(p, profile);
    const auto in_use = retime(updated, first->schedule);
    if (!in_use) return std::cout << describe(in_use.why()) << '\n', 1;
    const auto second = plan(updated, {.start = *in_use});
    if (!second) return std::cout << describe(second.why()) << '\n', 1;
    std::cout << "planned " << first->objective.value() << " ms, really " << objective_of(updated, *in_use).value()
              << " ms; planned again " << second->objective.value() << " ms\n";

    // Or in the background of the training: submit once, and ask for the best plan between two steps.
    background_options beside;
    beside.how.time_limit = std::chrono::seconds{1};
    background_planner planner{beside};
    planner.submit(updated, *in_use);
    background_plan better = planner.poll();
    while (!better.finished) { // a training step would run here
        planner.wait_for(std::chrono::milliseconds{20});
        better = planner.poll();
    }
    std::cout << "in the background " << better.objective.value() << " ms\n";
    // Or plan every step anew, because its microbatches have other documents.
    const bool is_better = better.schedule && second->objective <= objective_of(updated, *in_use);
    return is_better && plans_packed_steps(p) ? 0 : 1;
}
