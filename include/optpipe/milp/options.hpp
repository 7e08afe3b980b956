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

/// What a search knows at a moment, in the model's direction; infinite where it knows nothing yet.
struct progress {
    double incumbent = 0.0;
    double bound = 0.0;
    double gap = 0.0;
    std::size_t nodes = 0;
    double seconds = 0.0;
};

/// Takes solutions from a progress callback: one value per variable of the model. They are checked before they count,
/// and one that is feasible and better than the incumbent becomes it.
class solution_sink {
public:
    void offer(std::span<const double> values);
    [[nodiscard]] std::vector<std::vector<double>> take();

private:
    std::vector<std::vector<double>> offered_;
};

/// All limits hold at once. Callbacks come one at a time, but from any of the search's threads.
struct solve_options {
    std::chrono::duration<double> time_limit{std::numeric_limits<double>::infinity()};
    std::size_t node_limit = std::numeric_limits<std::size_t>::max();
    /// Bytes for all that the search makes: presolved models, relaxations with their factors, cuts, nodes, and what is
    /// learned. The given model isn't among them. Deterministic searches look at it between rounds only, and may pass
    /// it by what a round takes.
    std::size_t memory_limit = std::numeric_limits<std::size_t>::max();
    /// What counts as optimal: objective and bound this close, the relative gap from 0 to 1. At 0 the optimum is proven
    /// to the last digits that the tolerance leaves.
    double relative_gap = 0.0;
    double absolute_gap = 0.0;
    std::stop_token stop{};

    /// No more are used than there are cores.
    std::size_t threads = 1;
    std::uint64_t seed = 1;
    /// Same seed, same result, whatever the number of threads, unless time or a stop request cuts it short.
    bool deterministic = false;

    bool presolve = true;
    bool cuts = true;
    bool heuristics = true;
    /// The depth-first search that propagates and learns, beside the tree of relaxations.
    bool conflict_search = true;
    /// The tree of relaxations.
    bool tree_search = true;
    std::size_t restarts = 3;
    /// For rows, bounds and integrality, of incumbents and in all comparisons. Above 0.
    optpipe::tolerance tolerance{};

    /// Called at every new incumbent, and about this often.
    std::function<void(const progress&, solution_sink&)> on_progress{};
    std::chrono::duration<double> progress_interval{1.0};
    std::function<void(std::string_view)> log{};
    /// Gets every new incumbent, if there is one. Must outlive the call.
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
