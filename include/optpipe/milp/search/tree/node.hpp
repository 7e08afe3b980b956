#pragma once

#include "optpipe/milp/lp/basis.hpp"
#include "optpipe/milp/search/propagation/literal.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace optpipe::milp::search {

/// An open node of the tree, as a list of decisions.
struct node {
    std::vector<literal> decisions;
    /// Lower bound on the objective of the node's points.
    double bound = 0.0;
    /// Estimate of the best objective in the node.
    double estimate = 0.0;
    /// Basis of the parent's relaxation; may be null.
    std::shared_ptr<const basis> start;
    /// Distance of the last decision's rounding; 0 if unknown. Used for pseudocosts.
    double rounded = 0.0;
    /// Number of the node in the order of creation. Used to break ties.
    std::uint64_t number = 0;

    [[nodiscard]] std::size_t bytes() const {
        const auto shared = start ? (start->columns.size() + start->rows.size()) / 2 : 0;
        return sizeof(node) + decisions.capacity() * sizeof(literal) + shared;
    }
};

} // namespace optpipe::milp::search
