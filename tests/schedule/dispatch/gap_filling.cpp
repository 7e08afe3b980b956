#include "optpipe/schedule/dispatch/gap_filling.hpp"

#include "optpipe/schedule/builders/one_forward_one_backward.hpp"
#include "optpipe/schedule/time/evaluate.hpp"
#include "optpipe/schedule/time/measure.hpp"
#include "optpipe/schedule/time/validate.hpp"
#include "oracle/golden.hpp"

#include <doctest/doctest.h>

#include <cstddef>

using namespace optpipe;

TEST_CASE("operations are pulled into gaps within a budget below the limit, and a larger one makes the step shorter") {
    for (std::size_t ranks = 2; ranks <= 6; ++ranks) {
        CAPTURE(ranks);
        const auto p = oracle::linear_problem(ranks, 2 * ranks, {1, 1, 1, 0.125}, 1.0, 0.5);
        const auto given = one_forward_one_backward(p.graph);
        const auto before = measure(p, *time_order(p, given));
        auto last = before.objective;
        for (std::size_t more = 0; more <= ranks; ++more) {
            CAPTURE(more);
            auto budget = before.peak_memory;
            for (auto& each : budget)
                each += memory_size{static_cast<double>(more)};
            const auto filled = *time_order(p, fill_gaps(p, given, budget));
            CHECK(is_valid(p, filled));
            for (const rank r : p.graph.all_ranks())
                CHECK(measure(p, filled).peak_memory[r] <= budget[r]);
            CHECK(objective_of(p, filled) <= last);
            last = objective_of(p, filled);
        }
        CHECK(last < before.objective);
    }
}
