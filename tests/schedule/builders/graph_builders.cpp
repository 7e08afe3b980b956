// Builders for graphs, slices and microbatches that differ, and published schedules of such problems.
#include "optpipe/core/random.hpp"
#include "optpipe/pipeline/make_problem.hpp"
#include "optpipe/pipeline/memory_model.hpp"
#include "optpipe/pipeline/slices.hpp"
#include "optpipe/schedule/builders/all.hpp"
#include "optpipe/schedule/time/evaluate.hpp"
#include "optpipe/schedule/time/measure.hpp"
#include "optpipe/schedule/time/validate.hpp"
#include "optpipe/testing/random_problem.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace {

using namespace optpipe;

problem chain(std::size_t ranks, std::size_t microbatches, double forward, double backward) {
    per_stage<stage_costs> costs(ranks);
    per_stage<rank> ranks_of(ranks);
    for (const stage s : costs.indices()) {
        costs[s] = {.forward = duration{forward},
                    .backward_input = duration{0.5 * backward},
                    .backward_weight = duration{0.5 * backward},
                    .activation = memory_size{1.0}};
        ranks_of[s] = rank{s.value()};
    }
    return {any_graph{ranks, microbatches, placement::map<>{ranks_of}}, costs};
}

/// `sequences` sequences of slices with these factors, the same for each sequence.
problem sliced(std::size_t ranks, std::size_t sequences, const std::vector<cost_factors>& slices) {
    auto p = chain(ranks, sequences * slices.size(), 1.0, 2.0);
    std::vector<cost_factors> factors;
    std::vector<std::uint32_t> numbers;
    for (std::uint32_t i = 0; i < sequences; ++i)
        for (const auto& each : slices) {
            factors.push_back(each);
            numbers.push_back(i);
        }
    p.microbatches.set_factors(factors);
    p.microbatches.set_sequences(numbers);
    return p;
}
cost_factors all(double f) { return equal_factors(f); }

/// The instance of DynaPipe's tests.
problem uneven() {
    auto p = chain(4, 8, 8.0, 16.0);
    constexpr std::array forward{8.0, 8.0, 4.0, 4.0};
    for (const stage s : p.graph.all_stages())
        p.change_stage(s, [&](stage_costs& c) {
            c.forward = c.backward_input = c.backward_weight = duration{forward[s.position()]};
        });
    std::vector<cost_factors> factors;
    for (const double f : {1.0, 0.8, 1.2, 0.9, 1.1, 0.7, 1.4, 0.6})
        factors.push_back(all(f));
    p.microbatches.set_factors(factors);
    return p;
}

/// A chain whose last stage feeds a shard of the output layer on every rank. Measured stage times in microseconds:
/// Vocabulary Parallelism (Yeung et al., 2024), artifact, 8 A100.
struct measured_row {
    double step;
    std::array<double, 8> forward;
    std::array<double, 8> backward;
    std::array<double, 8> vocabulary; ///< passes and reductions
};
problem with_shards(const measured_row& row) {
    constexpr std::size_t ranks = 8;
    // The row has one time for both passes. The split hardly matters.
    constexpr double share_of_s = 0.45;
    per_stage<stage_costs> costs(2 * ranks);
    per_stage<rank> ranks_of(2 * ranks);
    std::vector<edge> feeds;
    std::vector<stage> shards;
    for (std::size_t r = 0; r < ranks; ++r) {
        const stage own{r}, shard{ranks + r};
        const auto half = duration{0.5 * row.backward[r]};
        costs[own] = {duration{row.forward[r]}, half, half, memory_size{1.0}};
        const auto rest = duration{0.5 * (1.0 - share_of_s) * row.vocabulary[r]};
        costs[shard] = {duration{share_of_s * row.vocabulary[r]}, rest, rest, memory_size{0.3}};
        ranks_of[own] = ranks_of[shard] = rank{r};
        if (r > 0) feeds.push_back({stage{r - 1}, own});
        feeds.push_back({stage{ranks - 1}, shard});
        shards.push_back(shard);
    }
    constexpr std::size_t microbatches = 128;
    problem p{any_graph{ranks, microbatches, placement::map<>{ranks_of}, edges::any{2 * ranks, feeds}}, costs};
    p.groups.add(shards, duration{}, 2 * ranks);
    return p;
}

template <class Builder> schedule checked(const problem& p, const Builder& build) {
    const auto made = build_schedule(p, build);
    REQUIRE_MESSAGE(made, describe(made.why()));
    const auto found = validate(p, *made);
    CHECK_MESSAGE(found.empty(), (found.empty() ? "" : found.front().text()));
    return *made;
}
template <class Builder> double step(const problem& p, const Builder& build) {
    return objective_of(p, checked(p, build)).value();
}

} // namespace

TEST_CASE("Seq1F1B: the closed forms of time and memory for equal slices") {
    for (const auto& [ranks, sequences] : {std::pair{4U, 8U}, std::pair{8U, 16U}, std::pair{8U, 32U}})
        for (const std::size_t k : {2U, 4U, 8U}) {
            CAPTURE(ranks);
            CAPTURE(k);
            const double slices = static_cast<double>(k);
            const auto p = sliced(ranks, sequences, std::vector<cost_factors>(k, all(1.0 / slices)));
            const auto made = checked(p, sequence_1f1b);
            const auto found = measure(p, made);
            CHECK(found.makespan.value() == doctest::Approx(3.0 * sequences + 3.0 * (ranks - 1.0) / slices));
            CHECK(found.peak_memory[rank{0}].value() == doctest::Approx((ranks + slices - 1.0) / slices));
            CHECK(step(p, graph_1f1b) == doctest::Approx(found.makespan.value()));
        }
    const auto whole = build_schedule(chain(4, 8, 1.0, 2.0), sequence_1f1b);
    REQUIRE_FALSE(whole);
    CHECK(describe(whole.why()) == "Seq1F1B is for sequences that are cut into slices");
}

TEST_CASE("causal slices: those of equal length gain nothing, those of equal time as much as without attention") {
    const std::vector sequences(16, 4096);
    // F 1, B 2, and half of both is attention. I has all of attention's gradient.
    const auto sliced_into = [&](std::size_t k, const microbatch_list<>& slices) {
        auto p = chain(8, 16 * k, 1.0, 2.0);
        p.change_stages([](stage_costs& c) {
            c.backward_input = duration{1.5};
            c.backward_weight = duration{0.5};
        });
        p.microbatches = slices;
        return p;
    };
    CHECK(step(sliced_into(1, slices(sequences, 0.5, 1)), one_forward_one_backward) == 69.0);
    const auto by_length = sliced_into(8, slices(sequences, 0.5, 8));
    CHECK(step(by_length, sequence_1f1b) == doctest::Approx(71.4609375));
    CHECK(measure(by_length, checked(by_length, sequence_1f1b)).peak_memory[rank{0}].value() ==
          doctest::Approx(15.0 / 8.0));
    CHECK(step(sliced_into(8, slices(sequences, 0.25, 8)), sequence_1f1b) > 61.0);
    // The closed form of equal slices, 16 (F + B) + 7 (F + B) / 8. At most, rank 0 holds a whole sequence, the first
    // four slices of the one before and the first three of the one after: 1 + x + y, where x² / 2 + x / 2 = 4 / 8, and
    // 3 / 8 for y.
    const auto by_time = sliced_into(8, equal_time_slices(sequences, 0.5, 8));
    CHECK(step(by_time, sequence_1f1b) == doctest::Approx(50.625));
    CHECK(measure(by_time, checked(by_time, sequence_1f1b)).peak_memory[rank{0}].value() ==
          doctest::Approx(1.0 + (std::sqrt(5.0) - 1.0) / 2.0 + 0.5));
}

TEST_CASE("1F1B of microbatches that differ: in the given order, and in the best") {
    const auto p = uneven();
    CHECK(step(p, one_forward_one_backward) == doctest::Approx(240.8));
    CHECK(step(p, dynapipe) == doctest::Approx(208.8));
    const auto equal = build_schedule(chain(4, 8, 1.0, 2.0), dynapipe);
    REQUIRE_FALSE(equal);
    CHECK(describe(equal.why()) == "microbatches are equal, so that their order changes nothing");
}

TEST_CASE("dynapipe tries all orders if they are few") {
    optpipe::random_numbers random{5};
    for (int i = 0; i < 20; ++i) {
        auto p = chain(3, 4, 1.0, 2.0);
        std::vector<cost_factors> factors;
        for (const microbatch m : p.graph.all_microbatches())
            factors.push_back(all(0.2 + random.share() + 0.01 * static_cast<double>(m.value())));
        std::sort(factors.begin(), factors.end(), [](const auto& a, const auto& b) { return a.forward < b.forward; });
        p.microbatches.set_factors(factors);
        constexpr std::size_t orders = 24;
        const dynapipe_builder just_enough{.effort = orders * 2 * p.graph.cells()};
        const double found = step(p, just_enough);
        auto best = found;
        do {
            p.microbatches.set_factors(factors);
            best = std::min(best, step(p, one_forward_one_backward));
        } while (std::next_permutation(factors.begin(), factors.end(),
                                       [](const auto& a, const auto& b) { return a.forward < b.forward; }));
        CHECK(found == doctest::Approx(best));
    }
}

TEST_CASE("published schedules of unequal slices and a frozen stage: the slices of a sequence follow one another") {
    auto p = sliced(3, 4, {all(0.25), {0.45, 0.45, 0.25, 0.25, 0.25}, all(0.5)});
    p.change_stage(stage{0}, [](stage_costs& c) {
        c.gradients = gradient_kind::input;
        c.backward_weight = duration{};
        c.weight_stash = memory_size{};
    });
    for (const double makespan : {step(p, gpipe), step(p, one_forward_one_backward), step(p, zero_bubble_h1),
                                  step(p, zero_bubble_auto), step(p, sequence_1f1b), step(p, dynapipe)})
        CHECK(makespan >= p.busiest_work().value() * static_cast<double>(p.graph.microbatches()));
    CHECK(measure(p, checked(p, sequence_1f1b)).peak_memory[rank{0}] <
          measure(p, checked(p, one_forward_one_backward)).peak_memory[rank{0}]);
}

TEST_CASE("published schedules of a graph: its stages in their order are a chain") {
    auto p = to_problem(make_problem(graph<dynamic, dynamic, placement::v>{2, 5}, unit_memory{}));
    std::vector<edge> feeds{{stage{0}, stage{1}}, {stage{1}, stage{2}}, {stage{0}, stage{3}, 1.0, memory_size{0.5}}};
    feeds.push_back({stage{2}, stage{3}});
    p.graph = any_graph{2, 5, p.graph.placement(), edges::any{4, feeds}};
    REQUIRE_FALSE(is_plain(p));
    CHECK(step(p, dual_pipe_v) <= step(p, gpipe));
    CHECK(step(p, graph_1f1b) >= p.busiest_work().value() * 5.0);
}

TEST_CASE("random graphs, slices and groups: every builder's order can be executed, or it says why not") {
    constexpr std::uint64_t seed = 5;
    std::size_t made = 0;
    for (std::uint64_t i = 0; i < 400; ++i) {
        CAPTURE(i);
        optpipe::random_numbers random{seed + i};
        auto p = testing::make_random_problem(random, {.cells = 24, .graph_percent = 100}).problem;
        for (auto& limit : p.memory_limit)
            limit = memory_size::unlimited();
        if (is_plain(p)) continue;
        const auto check = [&](const auto& build) {
            CAPTURE(build.name);
            const auto built = build_schedule(p, build);
            if (!built) {
                CHECK_MESSAGE(built.why().reason == refusal_reason::does_not_apply, describe(built.why()));
                return;
            }
            const auto found = validate(p, *built);
            CHECK_MESSAGE(found.empty(), (found.empty() ? "" : found.front().text()));
            ++made;
        };
        for_each_builder([&](auto build) {
            if constexpr (requires { build.effort = 1000; }) build.effort = 1000;
            check(build);
        });
        for_each_storage_builder(check);
        check(sequence_1f1b);
        check(graph_1f1b);
        check(dynapipe_builder{.effort = 1000});
    }
    CHECK(made > 1000);
}

TEST_CASE("1F1B with vocabulary shards predicts measured steps within 2 %") {
    const measured_row rows[] = {{5951.1, // 256k
                                  {10936, 11477, 11316, 11010, 11362, 11428, 11847, 11108},
                                  {22897, 22352, 22288, 23214, 21963, 22527, 22633, 22210},
                                  {10007, 9933, 9908, 10101, 9940, 10140, 10037, 9883}}};
    for (const auto& row : rows) {
        const auto p = with_shards(row);
        CHECK(step(p, graph_1f1b) / 1000.0 == doctest::Approx(row.step).epsilon(0.02));
        CHECK(measure(p, checked(p, graph_1f1b)).peak_memory[rank{0}] <= memory_size{10.6 + 1e-9});
    }
}
