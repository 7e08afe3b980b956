#include "optpipe/planner/periodic_core.hpp"

#include "optpipe/schedule/builders/one_forward_one_backward.hpp"
#include "optpipe/schedule/validate.hpp"
#include "optpipe/testing/random_problem.hpp"
#include "oracle/reference_checker.hpp"

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>

using namespace optpipe;

namespace {

problem linear_problem(std::size_t ranks, std::size_t microbatches, double stashes, double transfer = 0.0) {
    stage_costs each{duration{18.5}, duration{18.1}, duration{9.3}, memory_size{1.0}, memory_size{0.5}, {}};
    if (transfer > 0.0) each.transfer = transfer_times{duration{transfer}, duration{transfer}};
    problem p{to_any_graph(graph<dynamic, dynamic>{ranks, microbatches}), per_stage<stage_costs>(ranks, each)};
    p.p2p = hop_times<>{duration{0.6}};
    for (auto& limit : p.memory_limit)
        limit = memory_size{stashes};
    return p;
}

} // namespace

TEST_CASE("what it offers is valid, never worse than what was there, and the same with the same seed") {
    std::size_t found = 0;
    for (std::uint64_t seed = 1; seed <= 40; ++seed) {
        CAPTURE(seed);
        random_numbers random{seed};
        const auto p =
            testing::make_random_problem(random, {.ranks = 4, .stages = 6, .microbatches = 8, .cells = 24}).problem;
        const auto run = [&] {
            search_board board{p};
            periodic_core(board, {.seed = seed, .effort = 20'000});
            return board.incumbent();
        };
        const auto one = run();
        const auto two = run();
        REQUIRE((one == nullptr) == (two == nullptr));
        if (!one) continue;
        ++found;
        CHECK(one->operations == two->operations);
        const auto verdict = oracle::judge(p, *one);
        CHECK_MESSAGE(verdict.valid(), verdict.text());

        search_board board{p};
        board.offer(*one, "before");
        const auto before = board.objective();
        periodic_core(board, {.seed = seed + 1, .effort = 20'000});
        CHECK(board.objective() <= before);
    }
    CHECK(found > 20);
}

TEST_CASE("a long run is planned in a reduced step and stretched") {
    for (const double transfer : {0.0, 15.0}) {
        CAPTURE(transfer);
        const auto p = linear_problem(4, 200, transfer > 0.0 ? 3.5 : 4.0, transfer);
        search_board board{p};
        std::size_t improved = 0;
        periodic_core(board, {.seed = 1, .effort = 60'000, .improve = [&](search_board& reduced) {
                                  ++improved;
                                  CHECK(reduced.to_solve().graph.microbatches() < 40);
                                  CHECK(reduced.incumbent() != nullptr);
                              }});
        CHECK(improved == 1);
        REQUIRE(board.incumbent() != nullptr);
        CHECK(is_valid(p, *board.incumbent()));
        // Within three per cent of the load: no bubble in the middle.
        CHECK(board.objective().value() <= 1.03 * p.load(rank{0}).value());
    }
}

TEST_CASE("a schedule of the reduced step becomes one of the whole") {
    const auto p = linear_problem(4, 200, 4.0);
    search_board board{p};
    detail::long_run run{board};
    REQUIRE(run.is_reduced());
    run.stretch_to_all(*build_schedule(run.reduced(), one_forward_one_backward));
    CHECK(board.objective().value() ==
          doctest::Approx(objective_of(p, *build_schedule(p, one_forward_one_backward)).value()));
}

TEST_CASE("a board that is done is left alone") {
    const auto p = linear_problem(3, 8, 3.0);
    std::stop_source source;
    source.request_stop();
    search_board board{p, {.stop = source.get_token()}};
    periodic_core(board);
    CHECK(board.incumbent() == nullptr);
}

TEST_CASE("what is far behind the best known isn't improved") {
    const auto p = linear_problem(4, 200, 4.0);
    const auto improves = [&](double slower) {
        search_board board{p};
        periodic_core(board, {.effort = 60'000, .improve = {}});
        detail::long_run run{board};
        periodic_pattern pattern;
        detail::period_search search{run.reduced(), 1, 60'000, [&](const periodic_pattern& found) { pattern = found; },
                                     [] { return false; }};
        search.run();
        pattern.period = slower * pattern.period;
        for (auto& beats : pattern.stages)
            for (auto& at : beats)
                for (auto* time : {&at.forward, &at.gradient, &at.weight})
                    *time = slower * *time;
        run.offer(pattern);
        bool improved = false;
        run.finish([&](search_board&) { improved = true; });
        return improved;
    };
    CHECK(improves(1.0));
    CHECK_FALSE(improves(1.2));
}
