#pragma once

#include "execution/handovers.hpp"

#include <doctest/doctest.h>

#include <cstddef>
#include <vector>

namespace handovers {

/// Checks the records of all ranks, in their order: each ran the same program in the same step, and all of it.
inline void check(const std::vector<record>& seen, std::size_t wanted) {
    const auto& first = seen.front();
    CHECK(wrong_results(first, wanted, seen.size()) == "");
    MESSAGE(first.versions.size() << " steps, " << accepted(first) << " of " << wanted << " plans accepted");
    CHECK(accepted(first) > wanted / 4);
    CHECK(accepted(first) < wanted);
    for (const auto& own : seen) {
        CHECK(own.versions == first.versions); // never two programs in one step
        CHECK(own.weights == own.versions.size() * microbatches);
        CHECK(own.slabs == 3);
        CHECK(own.lanes <= most_lanes);
    }
}

} // namespace handovers
