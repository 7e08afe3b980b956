#include "optpipe/schedule/construct/building_block.hpp"

#include "optpipe/pipeline/make_problem.hpp"
#include "optpipe/schedule/builders/v_block.hpp"
#include "optpipe/schedule/time/evaluate.hpp"
#include "optpipe/schedule/time/measure.hpp"
#include "oracle/golden.hpp"
#include "oracle/random_cases.hpp"
#include "oracle/v_problem.hpp"
#include "schedule/construct/collisions.hpp"

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>

namespace {

using namespace optpipe;

/// 1F1B as a building block: F one cell after the stage before, I right after the last stage's F, W after I.
building_block<any_graph> one_forward_one_backward_block(const any_graph& g) {
    building_block<any_graph> block;
    block.cells = per_stage<block_cells>(g.stages());
    block.period = 3;
    for (const stage s : g.all_stages()) {
        const auto back = g.stages() - 1 - s.position();
        block.cells[s] = {s.position(), g.stages() + 2 * back, g.stages() + 2 * back + 1};
    }
    return block;
}

constexpr auto two = [] {
    building_block<graph<1, 3>> block;
    block.cells[stage{0}] = {0, 1, 2};
    block.period = 3;
    return block;
}();
static_assert(is_free_of_collisions(graph<1, 3>{}, two));
static_assert(two.shift(2) == 6);

} // namespace

TEST_CASE("1F1B repeated holds one stash for each rank behind, as its lifespans say") {
    for (std::size_t ranks = 1; ranks <= 9; ++ranks) {
        CAPTURE(ranks);
        const auto p = oracle::linear_problem(ranks, 4 * ranks, {1, 1, 1, 0}, 1.0, 1.0);
        const auto block = one_forward_one_backward_block(p.graph);
        CHECK(is_free_of_collisions(p.graph, block));
        const auto needed = memory_of_repetition(p, block);
        const auto built = interleave(p.graph, lanes_of(repeat(p.graph, block)));
        REQUIRE(built.has_value());
        const auto m = measure(p, *time_order(p, *built));
        for (const rank r : p.graph.all_ranks()) {
            CHECK(needed[r].value() == static_cast<double>(ranks - r.position()));
            CHECK(m.peak_memory[r] == needed[r]);
        }
        // Its work, plus an F and an I of every other rank.
        CHECK(m.makespan.value() == static_cast<double>(3 * (4 * ranks) + 2 * (ranks - 1)));
    }
}

TEST_CASE("two passes on one cell are seen, within a repetition and across") {
    const auto g = oracle::linear_problem(2, 2, {1, 1, 1, 0}).graph;
    auto block = one_forward_one_backward_block(g);
    CHECK(is_free_of_collisions(g, block));
    block.cells[stage{0}].backward_weight = block.cells[stage{0}].forward;
    CHECK_FALSE(is_free_of_collisions(g, block));
    block.cells[stage{0}].backward_weight = block.cells[stage{0}].forward + 3;
    CHECK_FALSE(is_free_of_collisions(g, block));
    block.cells[stage{0}].backward_weight = block.cells[stage{0}].forward + 5;
    CHECK(is_free_of_collisions(g, block));
}

TEST_CASE("no repetition holds more than its lifespans say, whatever the memory of the stages") {
    constexpr std::uint64_t seed = 7;
    std::uint64_t tight = 0;
    for (std::uint64_t i = 0; i < oracle::random_cases(300); ++i) {
        CAPTURE(seed);
        CAPTURE(i);
        random_numbers random{seed * 1'000'003 + i};
        auto p = oracle::random_v_problem(random);
        for (auto& limit : p.memory_limit)
            limit = memory_size::unlimited();
        building_block<any_graph> block;
        do {
            const auto group = 1 + random.below(2);
            const auto period = v_period * group + random.below(5);
            block = make_v_block(p.graph, {.slope = 1 + 2 * random.below(2),
                                           .bend = 1 + random.below(p.graph.ranks()),
                                           .forward_wait = random.below(3),
                                           .gradient_wait = random.below(3),
                                           .turn_wait = random.below(3),
                                           .period = period,
                                           .group = group,
                                           .stride = group == 2 ? v_period : 0});
        } while (!place_weight_gradients(p.graph, block) || !is_free_of_collisions(p.graph, block));
        const auto needed = memory_of_repetition(p, block);
        const auto built = interleave(p.graph, lanes_of(repeat(p.graph, block)));
        REQUIRE(built.has_value());
        const auto m = measure(p, *time_order(p, *built));
        for (const rank r : p.graph.all_ranks()) {
            CHECK(m.peak_memory[r].value() <= needed[r].value() + 1e-9);
            tight += m.peak_memory[r].value() >= needed[r].value() - 1e-9 ? 1 : 0;
        }
    }
    CHECK(tight >= oracle::random_cases(400));
}

TEST_CASE("what can't be split becomes B in the place of I") {
    const auto g = oracle::linear_problem(2, 2, {1, 1, 1, 0}).graph;
    auto lanes = lanes_of(repeat(g, one_forward_one_backward_block(g)));
    fuse_backwards(lanes);
    REQUIRE(lanes[rank{1}].size() == 4);
    CHECK(lanes[rank{1}][1] == backward(stage{1}, microbatch{0}));
    CHECK(interleave(g, lanes).has_value());
}
