#pragma once

#include "language_model/training.hpp"
#include "optpipe/pipeline/placement.hpp"
#include "optpipe/planner/plan.hpp"

#include <doctest/doctest.h>

#include <cstddef>

namespace training {

/// One stage per rank, and memory for only a few stashes, so that a good plan offloads some.
inline optpipe::problem tight_problem(std::size_t ranks) {
    auto p = problem_with<optpipe::placement::linear>(ranks, ranks + 2, optpipe::duration{0.8});
    limit_stashes(p, 1.0 + 0.25 * static_cast<double>(ranks));
    return p;
}
/// A plan of fixed effort: every call makes the same one.
inline optpipe::plan_result plan_of(const optpipe::problem& p) {
    auto found = optpipe::plan(p);
    REQUIRE(found.has_value());
    REQUIRE(measure(p, found->schedule).offloads > 0);
    return std::move(*found);
}

} // namespace training
