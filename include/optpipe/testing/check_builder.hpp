#pragma once

#include "optpipe/core/error.hpp"
#include "optpipe/schedule/builder.hpp"
#include "optpipe/schedule/evaluate.hpp"
#include "optpipe/schedule/validate.hpp"
#include "optpipe/testing/random_problem.hpp"

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace optpipe::testing {

/// How many problems a builder is tried on, and how large they are.
struct builder_trials {
    std::size_t problems = 200;
    std::uint64_t seed = 1;
    problem_ranges ranges{.ranks = 4, .stages = 8, .microbatches = 8, .cells = 48};
};

namespace detail {

template <class Builder>
void check_one(const Builder& build, const problem& p, const std::string& place, bool& applied,
               std::vector<violation>& found) {
    const auto built = build(p);
    const auto again = build(p);
    if (built.has_value() != again.has_value() || (built && built->operations != again->operations))
        found.push_back({place, "two calls with the same problem give two answers"});
    if (!built) {
        if (built.why().reason == refusal_reason::not_executable)
            found.push_back({place, "gives no order: " + describe(built.why())});
        return;
    }
    applied = true;
    auto without_limits = p;
    for (const rank r : p.graph.all_ranks())
        without_limits.memory_limit[r] = without_limits.host_memory_limit[r] = memory_size::unlimited();
    if (const auto timed = simulate(without_limits, *built); !timed) {
        found.push_back({place, describe(timed.why()) + ", at position " + std::to_string(timed.why().position)});
        return;
    }
    const auto timed = time_order(p, *built);
    if (!timed) return;
    for (const auto& broken : validate(p, *timed))
        found.push_back({place, broken.text()});
}

} // namespace detail

/// Tries a builder on random problems of every kind and says what is wrong: no executable order, an invalid schedule,
/// another answer on another call, or that it applies to none of them. Empty: it keeps its promises. `place` is the
/// seed of the problem, for `make_random_problem`.
template <class Builder>
[[nodiscard]] std::vector<violation> check_builder(const Builder& build, const builder_trials& trials = {}) {
    static_assert(check_schedule_builder<Builder>());
    std::vector<violation> found;
    bool applied = false;
    for (std::size_t i = 0; i < trials.problems; ++i) {
        random_numbers random{trials.seed + i};
        const auto p = make_random_problem(random, trials.ranges).problem;
        detail::check_one(build, p, "seed " + std::to_string(trials.seed + i), applied, found);
    }
    if (!applied) found.push_back({"", "applies to none of " + std::to_string(trials.problems) + " problems"});
    return found;
}

} // namespace optpipe::testing
