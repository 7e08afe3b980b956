#include "optpipe/planner/cheaper_storage.hpp"

#include "optpipe/pipeline/problem.hpp"

#include <doctest/doctest.h>

#include <chrono>
#include <cstddef>

using namespace optpipe;
using namespace std::chrono_literals;

namespace {

problem some_problem(std::size_t microbatches, bool with_options) {
    stage_costs unit;
    unit.forward = unit.backward_input = unit.backward_weight = duration{1.0};
    unit.activation = unit.weight_stash = memory_size{1.0};
    problem p{to_any_graph(graph<dynamic, dynamic>{4, microbatches}), per_stage<stage_costs>(4, unit)};
    if (with_options)
        for (auto& options : p.storage)
            options = {keep_stash(unit), {"full", memory_size{0.25}, {}, duration{1.0}, {}, {}}};
    return p;
}

} // namespace

TEST_CASE("of a time limit a twentieth at most is set aside for cheaper storage options, and no more than they take") {
    CHECK(detail::time_for_cheaper_storage(some_problem(10'000, false), 10s).count() == 0.0);
    const auto few = detail::time_for_cheaper_storage(some_problem(4, true), 10s);
    const auto many = detail::time_for_cheaper_storage(some_problem(10'000, true), 10s);
    CHECK(few.count() > 0.0);
    CHECK(few < many);
    CHECK(many <= 10s * 0.05);
    CHECK(detail::time_for_cheaper_storage(some_problem(10'000, true), 1s).count() == doctest::Approx(0.05));
    CHECK(detail::time_for_cheaper_storage(some_problem(10'000, true), 0s).count() == 0.0);
    // It doesn't grow with the limit beyond what it takes.
    CHECK(detail::time_for_cheaper_storage(some_problem(4, true), 1000s) == few);
}
