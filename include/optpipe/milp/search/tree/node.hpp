#pragma once

#include "optpipe/milp/lp/basis.hpp"
#include "optpipe/milp/search/propagation/literal.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace optpipe::milp::search {

/// An open part of the tree: the decisions that lead to it.
struct node {
    std::vector<literal> decisions;
    /// No point of this part is better.
    double bound = 0.0;
    /// What its best point may be worth.
    double estimate = 0.0;
    /// Of the parent's relaxation; may be missing.
    std::shared_ptr<const basis> start;
    /// What the last decision rounded away, for pseudocosts; 0 where unknown.
    double rounded = 0.0;
    /// In order of birth, for ties.
    std::uint64_t number = 0;

    [[nodiscard]] std::size_t bytes() const {
        const auto shared = start ? (start->columns.size() + start->rows.size()) / 2 : 0;
        return sizeof(node) + decisions.capacity() * sizeof(literal) + shared;
    }
};

} // namespace optpipe::milp::search
