#pragma once

#include "optpipe/planner/board.hpp"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

namespace optpipe {

/// How to plan. All limits hold at once.
struct plan_options {
    /// Search until the proof, the gap, or this. Without it the search spends a fixed effort, about a second's, and the
    /// plan depends on the problem and the seed alone.
    std::optional<std::chrono::duration<double>> time_limit{};
    /// 0, or more than the machine has: one for each of its cores.
    std::size_t threads = 0;
    std::uint64_t seed = 1;
    /// (objective − bound) / objective that is good enough.
    double gap = 0.0;
    std::stop_token stop{};
    /// Same seed, same plan, whatever the number of threads, unless time or a stop request cuts it short. Always so
    /// without a time limit.
    bool deterministic = false;
    /// Builders and parts that are not to be used, by name.
    std::vector<std::string> without{};
    /// Called at every better schedule or bound: one call at a time, from any thread.
    std::function<void(const search_step&)> progress{};
    /// A folder for plans that are kept from one run to the next; empty: none are.
    std::string cache{};
    /// Gets one sentence for what doesn't keep the plan from being made, as an unreadable entry of the cache.
    std::function<void(std::string_view)> warn{};
};

} // namespace optpipe
