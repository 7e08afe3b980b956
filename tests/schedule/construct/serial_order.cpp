// A sequence that is alone: with some choice of storage options it fits the memory, or with none.
#include "optpipe/schedule/construct/serial_order.hpp"

#include "optpipe/schedule/builders/adaptive.hpp"
#include "optpipe/schedule/time/evaluate.hpp"
#include "optpipe/schedule/time/simulate.hpp"
#include "oracle/random_cases.hpp"
#include "oracle/random_problem.hpp"

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <vector>

using namespace optpipe;

namespace {

/// Whether the order fits the memory with some storage option for each of its cells.
bool fits_with_some_options(const problem& p) {
    std::vector<std::size_t> choice(p.graph.cells(), 0);
    const auto options = [&](std::size_t cell) { return p.storage_options(stage{cell / p.graph.microbatches()}); };
    for (;;) {
        auto chosen = detail::one_at_a_time(p, [&](stage s, microbatch m) {
            return static_cast<storage_index>(choice[s.position() * p.graph.microbatches() + m.position()]);
        });
        if (simulate(p, chosen)) return true;
        std::size_t cell = 0;
        while (cell < choice.size() && ++choice[cell] == options(cell))
            choice[cell++] = 0;
        if (cell == choice.size()) return false;
    }
}

} // namespace

TEST_CASE("one sequence at a time fits wherever some choice of storage options does") {
    constexpr std::uint64_t seed = 61;
    std::size_t fitting = 0;
    std::size_t lacking = 0;
    for (std::uint64_t i = 0; i < oracle::random_cases(300); ++i) {
        CAPTURE(seed);
        CAPTURE(i);
        oracle::random_numbers random{seed * 1'000'003 + i};
        auto p =
            oracle::make_random_problem(random, {.ranks = 2, .cells = 4, .storage_percent = 80, .graph_percent = 100})
                .problem;
        for (const rank r : p.graph.all_ranks())
            p.memory_limit[r] = memory_size{0.25 * static_cast<double>(random.between(2, 20))};
        const bool fits = simulate(p, one_at_a_time(p)).has_value();
        CHECK(fits == fits_with_some_options(p));
        auto quick = adaptive;
        quick.effort = 1;
        if (fits) CHECK(build_schedule(p, quick).has_value());
        (fits ? fitting : lacking) += 1;
    }
    CHECK(fitting > oracle::random_cases(60));
    CHECK(lacking > oracle::random_cases(60));
}
