#pragma once

#include "optpipe/milp/expression.hpp"

#include <functional>
#include <optional>
#include <span>
#include <vector>

namespace optpipe::milp::search {

/// The user's hooks for the given model. Each hook may be missing.
struct given_hooks {
    std::optional<std::vector<double>> first_solution;
    std::vector<int> priorities;
    std::function<std::vector<constraint>(std::span<const double>)> cuts_at;
    std::function<std::optional<std::vector<double>>(std::span<const double>)> solution_near;
    std::optional<double> bound;
    std::vector<double> witness;
    std::function<void(const char*)> witness_lost;
};

} // namespace optpipe::milp::search
