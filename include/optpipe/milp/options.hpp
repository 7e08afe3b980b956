#pragma once

#include "optpipe/core/compiled.hpp"
#include "optpipe/core/tolerance.hpp"
#include "optpipe/milp/result.hpp"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <span>
#include <stop_token>
#include <string_view>
#include <vector>

namespace optpipe::milp {

/// The state of a search. `incumbent` and `bound` are objective values of the user's model, and infinite if unknown.
struct progress {
    double incumbent = 0.0;
    double bound = 0.0;
    double gap = 0.0;
    std::size_t nodes = 0;
    double seconds = 0.0;
};

/// Takes solutions from a progress callback, with one value per variable of the model. A solution replaces the
/// incumbent if it passes the check and is better.
class solution_sink {
public:
    void offer(std::span<const double> values);
    [[nodiscard]] std::vector<std::vector<double>> take();

private:
    std::vector<std::vector<double>> offered_;
};

/// Options of a search. All limits hold at once. Callbacks are called one at a time, by any thread of the search.
struct solve_options {
    /// Not NaN.
    std::chrono::duration<double> time_limit{std::numeric_limits<double>::infinity()};
    std::size_t node_limit = std::numeric_limits<std::size_t>::max();
    /// Limit in bytes of the search's memory: presolved models, relaxations, cuts, nodes and learned clauses. The given
    /// model doesn't count towards the limit. Deterministic searches may exceed the limit by the memory of one round.
    std::size_t memory_limit = std::numeric_limits<std::size_t>::max();
    /// A solution is optimal if its gap is within one of these limits. The relative gap is from 0 to 1. With gaps of 0,
    /// optimality is proven up to the tolerance.
    double relative_gap = 0.0;
    double absolute_gap = 0.0;
    std::stop_token stop{};

    /// Number of threads. At most one thread per core is used.
    std::size_t threads = 1;
    std::uint64_t seed = 1;
    /// Makes the result depend only on the seed, unless time or a stop request ends the search.
    bool deterministic = false;

    bool presolve = true;
    bool cuts = true;
    bool heuristics = true;
    /// Whether to add a depth-first search with clause learning to the tree search.
    bool conflict_search = true;
    /// Whether to run branch and bound on relaxations. Contract: at least one of the two searches is on.
    bool tree_search = true;
    std::size_t restarts = 3;
    /// Tolerance of rows, bounds and integrality, for incumbents and for all comparisons. Must be positive.
    optpipe::tolerance tolerance{};

    /// Called at every new incumbent, and otherwise about once per interval.
    std::function<void(const progress&, solution_sink&)> on_progress{};
    std::chrono::duration<double> progress_interval{1.0};
    std::function<void(std::string_view)> log{};
    /// Receives every new incumbent, if not null. The object must outlive the call.
    shared_incumbent* shared = nullptr;
};

} // namespace optpipe::milp

#if OPTPIPE_DEFINES(milp)

#include <utility>

namespace optpipe::milp {

OPTPIPE_INLINE void solution_sink::offer(std::span<const double> values) {
    offered_.emplace_back(values.begin(), values.end());
}

OPTPIPE_INLINE std::vector<std::vector<double>> solution_sink::take() { return std::exchange(offered_, {}); }

} // namespace optpipe::milp
#endif
