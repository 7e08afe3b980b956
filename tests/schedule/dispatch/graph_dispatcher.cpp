// Pairs that the dispatcher starts, and slices of sequences.
#include "optpipe/schedule/dispatch/graph_dispatcher.hpp"

#include "optpipe/pipeline/make_problem.hpp"
#include "optpipe/pipeline/slices.hpp"
#include "optpipe/schedule/pair.hpp"
#include "optpipe/schedule/time/measure.hpp"
#include "optpipe/schedule/time/simulate.hpp"
#include "optpipe/schedule/time/validate.hpp"
#include "oracle/random_cases.hpp"
#include "oracle/random_pairs.hpp"
#include "oracle/random_problem.hpp"
#include "schedule/pair_problems.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

using namespace optpipe;

namespace {

order run(const problem& p, const graph_dispatch_options& options) {
    return {p.graph, graph_dispatcher<any_graph>{p, options}.run()};
}
bool has_pair(const order& of) {
    return std::any_of(of.operations.begin(), of.operations.end(), [](const operation& op) { return op.is_paired; });
}

} // namespace

TEST_CASE("runs with pairs are valid") {
    std::size_t complete = 0;
    std::size_t paired = 0;
    const auto cases = oracle::random_cases(300);
    for (std::uint64_t i = 0; i < cases; ++i) {
        CAPTURE(i);
        oracle::random_numbers random{5 * 1'000'003 + i};
        const auto p = oracle::with_random_pairs(
            random, oracle::make_random_problem(
                        random, {.ranks = 3, .stages = 6, .microbatches = 6, .cells = 24, .graph_percent = 50})
                        .problem);
        auto options = first_options(p);
        if (std::any_of(p.storage.begin(), p.storage.end(),
                        [](const auto& all) { return !all.empty() && all[0].offloads(); }))
            continue;
        options.pairs = true;
        options.careful = random.chance(50);
        options.most_weights = random.chance(50) ? 0 : 3;
        options.wait = random.chance(50) ? 2.0 : 0.0;
        for (std::size_t n = 0; n < p.overlaps.size(); ++n)
            options.avoided.push_back(random.chance(25) ? 1 : 0);
        const auto made = run(p, options);
        const auto timed = simulate(p, made);
        if (!timed) continue; // ranks wait for each other's memory
        CHECK(is_valid(p, *timed));
        ++complete;
        paired += has_pair(made) ? 1 : 0;
        options.pairs = false;
        CHECK_FALSE(has_pair(run(p, options)));
    }
    CHECK(complete > cases / 3);
    CHECK(paired >= cases / 20);
}

TEST_CASE("a run gives up only if the step would be too long") {
    std::size_t given_up = 0;
    std::size_t complete = 0;
    const auto cases = oracle::random_cases(300);
    for (std::uint64_t i = 0; i < cases; ++i) {
        CAPTURE(i);
        oracle::random_numbers random{7 * 1'000'003 + i};
        auto p = oracle::make_random_problem(
                     random, {.ranks = 3, .stages = 6, .microbatches = 6, .cells = 24, .graph_percent = 50})
                     .problem;
        p.objective = objective_kind::makespan;
        auto options = first_options(p);
        if (std::any_of(p.storage.begin(), p.storage.end(),
                        [](const auto& all) { return !all.empty() && all[0].offloads(); }))
            continue;
        options.careful = random.chance(50);
        options.most_weights = random.chance(50) ? 0 : 3;
        const auto made = run(p, options);
        const auto timed = simulate(p, made);
        if (!timed) continue; // ranks wait for each other's memory
        ++complete;
        per_rank<duration> work(p.graph.ranks());
        for (const auto& op : made.operations)
            if (op.kind != operation_kind::recompute) work[p.rank_of(op.stage)] += duration_of(p, op);
        const auto value = objective_of(p, *timed);
        for (const double share : {1.0, 0.99, 0.8}) {
            graph_dispatcher<any_graph> dispatcher{p, options};
            const auto shorter = dispatcher.run_until(share * value, work, {});
            if (dispatcher.gave_up()) {
                CHECK(share < 1.0);
                CHECK(shorter.size() < made.operations.size());
                ++given_up;
            } else {
                CHECK(shorter == made.operations);
            }
        }
    }
    CHECK(complete > cases / 3);
    CHECK(given_up > complete / 2);
}

TEST_CASE("a dispatcher starts no pair that it avoids") {
    const auto p = pair_problem(3, 8, 4.0, true);
    auto options = first_options(p);
    options.pairs = true;
    const auto pairs_of_last = [&](const order& of) {
        return std::count_if(of.operations.begin(), of.operations.end(), [](const operation& op) {
            return op.is_paired && op.kind == operation_kind::forward && op.stage == stage{3};
        });
    };
    CHECK(pairs_of_last(run(p, options)) > 0);
    for (const overlap& each : p.overlaps)
        options.avoided.push_back(each.forward == stage{3} ? 1 : 0);
    const auto made = run(p, options);
    CHECK(pairs_of_last(made) == 0);
    CHECK(has_pair(made));
}

TEST_CASE("there are more pairs if operations wait for each other") {
    const auto pairs_with = [](double wait) {
        auto p = pair_problem(2, 8, 4.0, false);
        p.p2p = hop_times<>{duration{0.25}};
        auto options = first_options(p);
        options.pairs = true;
        options.wait = wait;
        const auto made = run(p, options);
        CHECK(is_valid(p, *simulate(p, made)));
        return std::count_if(made.operations.begin(), made.operations.end(),
                             [](const operation& op) { return op.is_paired; });
    };
    CHECK(pairs_with(2.0) > pairs_with(0.0));
}

TEST_CASE("pairs shorten the step of a dispatcher") {
    const auto p = pair_problem(2, 8, 4.0, true);
    auto options = first_options(p);
    options.depth = 2.0;
    const auto alone = simulate(p, run(p, options));
    options.pairs = true;
    const auto paired = simulate(p, run(p, options));
    REQUIRE(alone);
    REQUIRE(paired);
    CHECK(objective_of(p, *paired) < 0.9 * objective_of(p, *alone));
}

TEST_CASE("with forwards first, slices make a shorter step if memory is scarce") {
    constexpr std::size_t ranks = 8;
    constexpr std::size_t sequences = 4;
    constexpr std::size_t k = 8;
    const graph<dynamic, dynamic> g{ranks, sequences * k};
    constexpr stage_costs each{duration{1}, duration{1.5}, duration{0.5}, memory_size{1}};
    const auto step_with = [&](double limit, bool forward_first) {
        auto p = make_problem(to_any_graph(g), uniform_memory{each}, memory_size{limit});
        p.microbatches = equal_time_slices(std::vector<double>(sequences, 1.0), 0.5, k);
        auto options = first_options(p);
        options.most_weights = 0;
        options.forward_first = forward_first;
        return objective_of(p, *simulate(p, run(p, options))).value();
    };
    constexpr double seq1f1b = 3.0 * sequences + 3.0 * (ranks - 1) / k; // closed form of Sun et al., 2024
    CHECK(step_with(ranks, true) == doctest::Approx(seq1f1b));
    CHECK(step_with(ranks, false) == doctest::Approx(seq1f1b));
    constexpr double less_than_seq1f1b = 1.875; // Seq1F1B holds 2.118
    CHECK(step_with(less_than_seq1f1b, true) < 0.9 * step_with(less_than_seq1f1b, false));
}
