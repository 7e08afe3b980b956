// Moves that change pairs: each is needed, because the moves that it replaces lead through longer steps.
#include "optpipe/planner/order_search/order_search.hpp"
#include "optpipe/planner/order_search/timed_order.hpp"
#include "optpipe/planner/portfolio/search_state.hpp"
#include "optpipe/schedule/builders/dual_pipe_v.hpp"
#include "optpipe/schedule/construct/distinct_pairs.hpp"
#include "optpipe/schedule/construct/serial_order.hpp"
#include "optpipe/schedule/pair.hpp"
#include "optpipe/schedule/time/measure.hpp"
#include "optpipe/schedule/time/simulate.hpp"
#include "optpipe/schedule/time/validate.hpp"
#include "schedule/pair_problems.hpp"

#include <doctest/doctest.h>

#include <cstddef>

using namespace optpipe;

namespace {

/// One rank with two stages. A pair with a B saves 0.1 of 3, and a pair with an I hides the forward.
problem problem_of_both_kinds() {
    auto p = pair_problem(1, 4, 5.8, true);
    for (const stage f : p.graph.all_stages())
        for (const stage b : p.graph.all_stages())
            p.overlaps.add({f, b, overlap_kind::backward_input, duration{1.0}, memory_size{}});
    return p;
}
/// One microbatch after the other, with full backwards.
order serial_with_full_backwards(const problem& p) {
    order made{p.graph, {}};
    for (const microbatch m : p.graph.all_microbatches()) {
        for (const stage s : p.graph.all_stages())
            made.operations.push_back(forward(s, m));
        for (std::size_t i = p.graph.stages(); i-- > 0;)
            made.operations.push_back(backward(stage{i}, m));
    }
    return made;
}
/// Two microbatches enter; then each forward of a further one is in a pair with the B of its stage.
order paired_with_full_backwards(const problem& p) {
    order made{p.graph, {}};
    const stage first{0};
    const stage second{1};
    const auto add = [&](operation op) { made.operations.push_back(op); };
    const auto add_pair = [&](operation f, operation b) {
        const auto pair = pair_of(f, b);
        add(pair.forward);
        add(pair.backward);
    };
    add(forward(first, microbatch{0}));
    add(forward(second, microbatch{0}));
    for (std::size_t m = 0; m + 1 < p.graph.microbatches(); ++m) {
        add_pair(forward(first, microbatch{m + 1}), backward(second, microbatch{m}));
        add_pair(forward(second, microbatch{m + 1}), backward(first, microbatch{m}));
    }
    add(backward(second, microbatch{p.graph.microbatches() - 1}));
    add(backward(first, microbatch{p.graph.microbatches() - 1}));
    return made;
}

} // namespace

TEST_CASE("an edit that goes on is undone as a whole, and timed as a whole") {
    const auto p = problem_of_both_kinds();
    const auto start = simulate(p, serial_with_full_backwards(p));
    REQUIRE(start);
    detail::timed_order of{p, 1e-3};
    REQUIRE(of.take(*start));
    const auto before = of.to_order().operations;
    const auto place = [&](detail::flat_problem::id op) {
        std::size_t i = 0;
        while (of[i] != op)
            ++i;
        return i;
    };
    // The second microbatch's first forward goes to the first microbatch's last backward, which becomes an I.
    const auto f = of.flat().number(forward(stage{0}, microbatch{1}));
    const auto b = of.flat().number(backward(stage{0}, microbatch{0}));
    const auto cell = of.flat().cell_of(b);
    for (const bool keeps : {false, true}) {
        REQUIRE(of.merge(place(b), place(f), false));
        of.edit_further([&](auto& all) {
            all.insert(all.begin() + static_cast<std::ptrdiff_t>(place(b)) + 1, of.flat().weight_of(cell));
            of.choose(cell, {0, true});
        });
        const auto timed = simulate(p, of.to_order());
        REQUIRE(timed);
        REQUIRE(of.retime(detail::timed_order::never) < detail::timed_order::never);
        if (keeps) {
            of.keep();
            CHECK(of.objective() == doctest::Approx(objective_of(p, *timed).value()));
        } else {
            of.undo();
            CHECK(of.to_order().operations == before);
        }
    }
}

TEST_CASE("a pair changes the kind of its backward, although splitting it would make the step longer") {
    const auto p = problem_of_both_kinds();
    const auto start = simulate(p, paired_with_full_backwards(p));
    REQUIRE(start);
    search_state state{p};
    state.offer_timed(*start, "start");
    order_search_parameters cold{.seed = 1, .moves = 4'000};
    cold.first_temperature = cold.last_temperature = cold.coldest_first = cold.coldest_last = 1e-9;
    order_search(state, cold, "order");
    const auto found = state.incumbent();
    CHECK(is_valid(p, *found));
    std::size_t pairs = 0;
    for_each_pair(*found, [&](const timed_operation&, const timed_operation& b) {
        CHECK(b.op.kind == operation_kind::backward_input);
        ++pairs;
    });
    CHECK(pairs >= 6);
}

TEST_CASE("no rank has more distinct pairs than the limit") {
    // DualPipeV holds five stashes.
    const auto ample = pair_problem(2, 8, 4.0, true);
    auto tight = ample;
    for (auto& limit : tight.memory_limit)
        limit = memory_size{4.0};
    for (const std::size_t most : {0U, 1U}) {
        search_limits limits;
        limits.most_distinct_pairs = most;
        search_state state{tight, limits};
        state.offer(one_at_a_time(tight), "serial");
        order_search(state, {.seed = 1, .moves = 20'000, .most_distinct_pairs = most}, "order");
        REQUIRE(state.incumbent());
        CHECK(most_distinct_pairs(*state.incumbent()) == most);
        // One that has more is offered without its other pairs.
        search_state other{ample, limits};
        other.offer(*dual_pipe_v(ample), "dualpipe-v");
        REQUIRE(other.incumbent());
        CHECK(most_distinct_pairs(*other.incumbent()) == most);
    }
}

TEST_CASE("the same seed and moves find the same schedule with pairs") {
    const auto p = pair_problem(2, 8, 4.0, true);
    search_state one{p};
    search_state other{p};
    for (auto* state : {&one, &other}) {
        state->offer(one_at_a_time(p), "serial");
        order_search(*state, {.seed = 3, .moves = 10'000}, "order");
    }
    CHECK(one.objective() == other.objective());
    CHECK(one.incumbent()->operations == other.incumbent()->operations);
}
