#pragma once

#include "optpipe/milp/search/context.hpp"
#include "optpipe/milp/search/propagation/literal.hpp"

#include <memory>
#include <span>
#include <utility>
#include <vector>

namespace optpipe::milp::search {

/// Results of one worker for the other workers.
struct worker_results {
    /// The worst objective that a new point may have.
    double cutoff = infinity;
    /// Literals that hold in the whole tree.
    std::vector<literal> global_bounds;
    /// The best known point of the problem; may be null.
    std::shared_ptr<const std::vector<double>> point;
    /// Solutions within the cutoff at their discovery, not yet offered.
    std::vector<std::vector<double>> solutions;
    /// Whether the relaxation of some node is unbounded, and with it the relaxation of the problem.
    bool is_unbounded = false;

    [[nodiscard]] bool is_solution(const context& c, std::span<const double> values) const {
        return c.best->verified(c.to_given(values)).has_value();
    }
    /// Offers a point of the problem. Returns whether the point is a solution within the cutoff.
    bool offer(const context& c, std::span<const double> values) {
        if (!offer_given(c, c.to_given(values))) return false;
        point = std::make_shared<const std::vector<double>>(values.begin(), values.end());
        return true;
    }
    bool offer_given(const context& c, std::vector<double> given) {
        auto fine = c.best->verified(std::move(given));
        if (!fine || fine->objective - c.shift > cutoff) return false;
        cutoff = c.cutoff_below(fine->objective - c.shift);
        if (c.options->deterministic)
            solutions.push_back(std::move(fine->values));
        else
            c.offer_given(std::move(fine->values));
        return true;
    }
    /// Offers the solutions to the shared incumbent.
    void publish(const context& c) {
        for (auto& s : std::exchange(solutions, {}))
            c.offer_given(std::move(s));
    }
};

} // namespace optpipe::milp::search
