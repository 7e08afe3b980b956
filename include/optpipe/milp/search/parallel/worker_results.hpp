#pragma once

#include "optpipe/milp/search/context.hpp"
#include "optpipe/milp/search/propagation/literal.hpp"

#include <memory>
#include <span>
#include <utility>
#include <vector>

namespace optpipe::milp::search {

/// What one worker has found and others should know.
struct worker_results {
    /// What points have to reach from here on.
    double cutoff = infinity;
    /// What holds everywhere.
    std::vector<literal> global_bounds;
    /// The best point known, in the problem's own terms; may be missing.
    std::shared_ptr<const std::vector<double>> point;
    /// Solutions of the given model that beat the cutoff of their time and wait to be offered.
    std::vector<std::vector<double>> solutions;

    [[nodiscard]] bool is_solution(const context& c, std::span<const double> values) const {
        return c.best->verified(c.to_given(values)).has_value();
    }
    /// A point of the problem; whether it is a solution within the cutoff.
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
    /// Hands them to the shared incumbent.
    void publish(const context& c) {
        for (auto& s : std::exchange(solutions, {}))
            c.offer_given(std::move(s));
    }
};

} // namespace optpipe::milp::search
