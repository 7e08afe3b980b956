#include "optpipe/planner/flat_problem.hpp"

#include "optpipe/core/random.hpp"
#include "optpipe/schedule/pair.hpp"
#include "optpipe/schedule/rules/dependencies.hpp"
#include "optpipe/schedule/rules/transfer_resources.hpp"
#include "oracle/random_cases.hpp"
#include "oracle/random_pairs.hpp"
#include "oracle/random_problem.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <set>
#include <utility>
#include <vector>

using namespace optpipe;
using namespace optpipe::detail;

namespace {

using id = flat_problem::id;

/// An operation, and the choice of its cell.
struct chosen_operation {
    operation op{};
    flat_problem::cell_choice choice{};
};

/// All operations that the problem may have, with every choice of their cells.
std::vector<chosen_operation> possible_operations(const problem& p) {
    std::vector<chosen_operation> all;
    for (const stage s : p.graph.all_stages())
        for (const microbatch m : p.graph.all_microbatches())
            for (const auto kind : all_operation_kinds)
                for (std::size_t o = 0; o < p.storage_options(s); ++o)
                    for (const bool is_split : {false, true}) {
                        const operation op{s, kind, m, static_cast<storage_index>(o)};
                        const bool has_whole_gradient = p.costs[s].gradients == gradient_kind::full && !is_split;
                        const bool is_other_gradient =
                            is_gradient(kind) && (kind == operation_kind::backward) != has_whole_gradient;
                        if (is_possible(p, op) && !is_other_gradient)
                            all.push_back({op, {static_cast<storage_index>(o), is_split}});
                    }
    return all;
}

using timed_neighbours = std::set<std::pair<id, double>>;

/// The problems of every kind that the generators draw.
problem drawn(random_numbers& random) {
    const auto kind = random.below(3);
    auto p = oracle::make_random_problem(random, {.ranks = 4,
                                                  .cells = 16,
                                                  .offloading_percent = 70,
                                                  .storage_percent = kind == 1 ? 100U : 0U,
                                                  .graph_percent = kind == 2 ? 100U : 0U})
                 .problem;
    return random.chance(40) ? oracle::with_random_pairs(random, std::move(p)) : p;
}

/// Calls `check(p, flat, random)` for problems that are drawn.
template <class Check> void for_drawn_problems(std::uint64_t seed, const Check& check) {
    for (std::uint64_t i = 0; i < oracle::random_cases(150); ++i) {
        CAPTURE(seed);
        CAPTURE(i);
        random_numbers random{seed * 1'000'003 + i};
        const auto p = drawn(random);
        check(p, flat_problem{p}, random);
    }
}

} // namespace

TEST_CASE("flat problem: numbers tell stage, kind and microbatch, and are distinct") {
    for_drawn_problems(1, [](const problem& p, const flat_problem& flat, random_numbers&) {
        std::set<id> numbers;
        for (const stage s : p.graph.all_stages())
            for (const microbatch m : p.graph.all_microbatches()) {
                const auto cell = flat.cell_of(s, m);
                for (const auto kind : slot_kinds) {
                    const id i = flat.number({s, kind, m});
                    CHECK((i >= 0 && static_cast<std::size_t>(i) < flat.size()));
                    numbers.insert(i);
                    CHECK(flat.stage_of(i) == static_cast<id>(s.value()));
                    CHECK(flat.microbatch_of(i) == static_cast<id>(m.value()));
                    CHECK(flat.cell_of(i) == cell);
                    CHECK(flat.number_in(cell, kind) == i);
                    CHECK(flat.is_forward(i) == (kind == operation_kind::forward));
                    CHECK(flat.is_gradient(i) == (kind == operation_kind::backward_input));
                    for (const auto other : slot_kinds)
                        CHECK(flat.sibling(i, other) == flat.number({s, other, m}));
                    CHECK(flat.with_microbatch(i, 0) == flat.number({s, kind, microbatch{0}}));
                    CHECK(flat.on_stage(i, -static_cast<id>(s.value())) == flat.number({stage{0}, kind, m}));
                }
                CHECK(flat.number(backward(s, m)) == flat.gradient_of(cell));
            }
        CHECK(numbers.size() == flat.size());
        CHECK(flat.size() == slot_kinds.size() * flat.cells());
    });
}

TEST_CASE("flat problem: durations and memory are those of the operations") {
    for_drawn_problems(2, [](const problem& p, const flat_problem& flat, random_numbers&) {
        for (const auto& [op, choice] : possible_operations(p)) {
            CAPTURE(to_string(op));
            const auto& facts = flat.facts_of(flat.number(op), choice);
            CHECK(facts.kind == op.kind);
            CHECK(facts.rank == static_cast<id>(p.rank_of(op.stage).value()));
            CHECK(facts.duration == duration_of(p, op).value());
            const auto effect = memory_effect_of(p, op);
            CHECK(facts.acquired == effect.acquired_at_start.value());
            CHECK(facts.released == effect.released_at_end.value());
            CHECK(facts.host_acquired == effect.host_acquired_at_start.value());
            CHECK(facts.host_released == effect.host_released_at_end.value());
            double released = facts.released;
            bool frees_others = false;
            for_each_release_of_others(p, op, [&](rank r, memory_size amount) {
                frees_others = true;
                if (r == p.rank_of(op.stage)) released += amount.value();
                CHECK((r == p.rank_of(op.stage) || flat.memory_delays()));
            });
            CHECK(facts.frees_others == frees_others);
            CHECK(facts.released_in_all == doctest::Approx(released));
        }
        for (const rank r : p.graph.all_ranks())
            CHECK(flat.limit(static_cast<id>(r.value())) >= p.memory_limit[r].value());
    });
}

TEST_CASE("flat problem: inputs and consumers are those of the rules") {
    std::size_t inputs = 0;
    for_drawn_problems(3, [&](const problem& p, const flat_problem& flat, random_numbers& random) {
        std::vector<double> ends(flat.size());
        // A forward ends before all other operations of its cell.
        for (id i = 0; i < static_cast<id>(flat.size()); ++i)
            ends[static_cast<std::size_t>(i)] = static_cast<double>(random.below(100) + (flat.is_forward(i) ? 0 : 100));
        const auto end_of = [&](id i) { return ends[static_cast<std::size_t>(i)]; };
        std::set<std::pair<id, id>> waits;
        std::set<std::pair<id, id>> serves;
        for (const auto& [op, choice] : possible_operations(p)) {
            CAPTURE(to_string(op));
            const id i = flat.number(op);
            const auto& facts = flat.facts_of(i, choice);
            timed_neighbours expected;
            const auto own = own_input_of(op, stash_way_of(p, op));
            if (own) expected.insert({flat.number(*own), 0.0});
            // The own input already waits for the forward of the same cell, if it isn't this forward.
            for_each_input_of_others(p, op, [&](const operation& before, duration delay) {
                const bool is_implied = before.stage == op.stage && before.microbatch == op.microbatch;
                if (!is_implied || delay > duration{}) expected.insert({flat.number(before), delay.value()});
            });
            timed_neighbours found;
            flat.for_each_input(i, facts, [&](id number, double delay) { found.insert({number, delay}); });
            CHECK(found == expected);
            inputs += found.size();
            const auto ready = input_time(
                p, op, [&](const operation& before) { return duration{end_of(flat.number(before))}; },
                stash_way_of(p, op));
            CHECK(flat.ready(i, facts, end_of) == ready.value());
            for (const auto& in : flat.neighbours(facts.inputs))
                waits.insert({i + in.difference, i});
            for (const auto& out : flat.neighbours(facts.consumers))
                serves.insert({i, i + out.difference});
        }
        CHECK(waits == serves);
    });
    CHECK(inputs > oracle::random_cases(1000));
}

TEST_CASE("flat problem: operations exclude each other where they take the same lane") {
    for_drawn_problems(4, [](const problem& p, const flat_problem& flat, random_numbers&) {
        std::vector<chosen_operation> firsts = possible_operations(p);
        std::erase_if(firsts, [](const chosen_operation& each) { return each.op.microbatch != microbatch{0}; });
        for (const auto& [a, of_a] : firsts)
            for (const auto& [b, of_b] : firsts) {
                const auto& left = flat.facts_of(flat.number(a), of_a);
                const auto& right = flat.facts_of(flat.number(b), of_b);
                const rank ra = p.rank_of(a.stage);
                const rank rb = p.rank_of(b.stage);
                const bool share = left.lane == right.lane || left.shared_lane == right.shared_lane;
                if (is_transfer(a.kind) != is_transfer(b.kind)) {
                    CHECK_FALSE(share);
                    continue;
                }
                if (!is_transfer(a.kind)) {
                    CHECK(share == (ra == rb));
                    continue;
                }
                const bool exclude = exclude_each_other(p.transfer, ra, is_inward(a.kind), rb, is_inward(b.kind));
                CHECK(share == exclude);
                // Engines and channels say the same.
                const bool same_engine = ra == rb && left.engine == right.engine;
                const bool same_channel = left.channel != flat_problem::none && left.channel == right.channel;
                CHECK((same_engine || same_channel) == exclude);
                CHECK(left.channel < flat.channels());
            }
    });
}

TEST_CASE("flat problem: storage options, and the choices of cells") {
    for_drawn_problems(5, [](const problem& p, const flat_problem& flat, random_numbers& random) {
        cell_choices choices{flat};
        for (const stage s : p.graph.all_stages()) {
            const auto number = static_cast<id>(s.value());
            REQUIRE(flat.options(number) == static_cast<id>(p.storage_options(s)));
            bool offloads = false;
            for (id o = 0; o < flat.options(number); ++o) {
                const auto& stored = p.storage_of(s, static_cast<std::size_t>(o));
                CHECK(flat.option(number, o).offloads == stored.offloads());
                CHECK(flat.option(number, o).recomputes == stored.recomputes());
                CHECK(flat.option(number, o).left_on_device == stored.left_on_device().value());
                offloads = offloads || stored.offloads();
            }
            CHECK(flat.can_offload(number) == offloads);
            if (p.costs[s].gradients != gradient_kind::full) continue;
            for (const auto kind : slot_kinds) {
                bool any = false;
                for (std::size_t o = 0; o < p.storage_options(s); ++o)
                    for (const bool is_split : {false, true})
                        any = any || ((!is_split || p.split_backward) &&
                                      flat.requires_operation(number, {static_cast<storage_index>(o), is_split}, kind));
                CHECK(flat.may_be_active(number, kind) == any);
            }
            for (const microbatch m : p.graph.all_microbatches()) {
                const flat_problem::cell_choice choice{static_cast<storage_index>(random.below(p.storage_options(s))),
                                                       random.chance(50)};
                choices.choose(flat.cell_of(s, m), choice);
                CHECK(choices.choice(flat.cell_of(s, m)) == choice);
                const operation gradient{s, choice.is_split ? operation_kind::backward_input : operation_kind::backward,
                                         m, choice.storage};
                const id i = flat.number(gradient);
                CHECK(choices.operation_of(i) == gradient);
                CHECK(choices[i] == flat.facts_of(i, choice));
                for (const stage f : p.graph.all_stages()) {
                    const auto other = forward(f, m);
                    CHECK(choices.overlap_of(flat.number(other), i) == overlap_of(p, other, gradient));
                    const bool is_other = flat.may_split_or_join(i);
                    const auto kind = choice.is_split ? operation_kind::backward : operation_kind::backward_input;
                    CHECK(choices.overlap_of_other_kind(flat.number(other), i) ==
                          (is_other ? overlap_of(p, other, {s, kind, m}) : nullptr));
                }
            }
        }
    });
}
