#pragma once

#include "optpipe/core/quantity.hpp"
#include "optpipe/core/standard.hpp"
#include "optpipe/pipeline/graph.hpp"
#include "optpipe/schedule/operation.hpp"
#include "optpipe/schedule/rules/cells.hpp"

#include <algorithm>
#include <vector>

namespace optpipe::detail {

/// The ends of the forwards and gradients placed until now, indexed by cell.
class known_ends {
public:
    template <pipeline_graph Graph>
    constexpr explicit known_ends(const Graph& g)
        : cell_{g}, forward_(cell_.size(), duration::unlimited()), gradient_(forward_) {}

    OPTPIPE_CONSTEXPR void clear() {
        std::fill(forward_.begin(), forward_.end(), duration::unlimited());
        std::fill(gradient_.begin(), gradient_.end(), duration::unlimited());
    }
    OPTPIPE_CONSTEXPR void set(const operation& op, duration end) {
        if (op.kind == operation_kind::forward) forward_[cell_(op)] = end;
        if (is_gradient(op.kind)) gradient_[cell_(op)] = end;
    }
    /// The end of a forward or of a gradient (I or B); unlimited while unknown.
    [[nodiscard]] OPTPIPE_CONSTEXPR duration operator()(const operation& op) const {
        return (op.kind == operation_kind::forward ? forward_ : gradient_)[cell_(op)];
    }

private:
    cell_numbering cell_;
    std::vector<duration> forward_;
    std::vector<duration> gradient_;
};

} // namespace optpipe::detail
