#pragma once

#include "optpipe/planner/canonical.hpp"
#include "optpipe/schedule/operation.hpp"

#include <string>
#include <vector>

namespace optpipe {

/// A plan as it is kept: for a problem in its canonical form, and in its units.
struct cache_entry {
    canonical_problem of{};
    double objective = 0.0;
    double bound = 0.0;
    /// The seconds that the search was given; infinite for a proof.
    double budget = 0.0;
    /// Who found it.
    std::string method{};
    /// In the order in which they start.
    std::vector<operation> operations{};

    friend bool operator==(const cache_entry&, const cache_entry&) = default;
};

} // namespace optpipe
