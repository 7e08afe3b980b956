#pragma once

#include "optpipe/planner/cache/canonical.hpp"
#include "optpipe/schedule/operation.hpp"

#include <string>
#include <vector>

namespace optpipe {

/// A stored plan: for a problem in canonical form and canonical units.
struct cache_entry {
    canonical_problem of{};
    double objective = 0.0;
    double bound = 0.0;
    /// The seconds that the search was given; infinite for a proof.
    double budget = 0.0;
    /// The strategy that found it.
    std::string method{};
    /// In the order in which they start. Their storage options are positions in `of.storage`.
    std::vector<operation> operations{};

    friend bool operator==(const cache_entry&, const cache_entry&) = default;
};

} // namespace optpipe
