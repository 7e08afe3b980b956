#pragma once

#include "optpipe/planner/cache/canonical.hpp"
#include "optpipe/schedule/operation.hpp"

#include <string>
#include <vector>

namespace optpipe {

/// A stored plan of a problem in canonical form. All numbers are in canonical units.
struct cache_entry {
    canonical_problem of{};
    double objective = 0.0;
    double bound = 0.0;
    /// The time in seconds given to the search. Infinite after a proof.
    double budget = 0.0;
    /// The strategy that found the schedule.
    std::string method{};
    /// Operations in the order of their starts. An operation's storage option is an index into `of.storage`.
    std::vector<operation> operations{};

    friend bool operator==(const cache_entry&, const cache_entry&) = default;
};

} // namespace optpipe
