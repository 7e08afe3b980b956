#pragma once

#include "optpipe/core/contract.hpp"
#include "optpipe/planner/portfolio/processor_share.hpp"
#include "optpipe/planner/portfolio/search_state.hpp"
#include "optpipe/planner/robust_options.hpp"
#include "optpipe/schedule/schedule.hpp"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

namespace optpipe {

/// How to plan. All limits hold at once.
struct plan_options {
    /// Search until the proof, the gap, or this. Without a limit it does deterministic work, of a second
    /// or a few: the plan depends on the problem and the seed alone.
    std::optional<std::chrono::duration<double>> time_limit{};
    /// 0, or more than the machine has: one for each of its cores.
    std::size_t threads = 0;
    /// Counts the processor time of all its threads, and may keep it below a share; null: neither.
    std::shared_ptr<processor_share> processor{};
    std::uint64_t seed = 1;
    /// (objective − bound) / objective that is good enough, from 0 to 1.
    double gap = 0.0;
    std::stop_token stop{};
    /// Whether a stop request ends the search at once, without a plan: whoever stops it doesn't read one, as all came
    /// with `progress`. On large problems it takes a tenth of a second to make one, or to check and return it.
    bool stops_without_plan = false;
    /// Same seed, same plan, whatever the number of threads, unless time or a stop request cuts it short. Always so
    /// without a time limit.
    bool deterministic = false;
    /// Names of builders and strategies to leave out.
    std::vector<std::string> without{};
    /// A schedule to begin from, as the one in use where costs have changed: the plan is never worse. Its order counts,
    /// not its times (`retime`), and positions in lists of storage options, not names. `plan` throws `input_error` for
    /// one that the problem can't execute within its memory: ask `retime` first.
    std::optional<schedule> start{};
    /// Optimize a percentile of the step time under random durations, in place of the planned step time. The plan is
    /// never worse in that than the start, or without one than the plan without noise, in the random steps that confirm
    /// it.
    std::optional<robust_options> robust{};
    /// Called at every better schedule or bound: one call at a time, from any thread. Strategies that have found
    /// something wait for it meanwhile: keep it short.
    std::function<void(const search_progress&)> progress{};
    /// A folder for plans that are kept from one run to the next; empty: none are.
    std::string cache{};
    /// Called with one sentence for each problem that doesn't prevent a plan, such as an unreadable cache entry.
    std::function<void(std::string_view)> warn{};
    /// Whether the search goes on, with a call of `warn`, after a strategy violates a contract. Otherwise `plan` throws
    /// `contract_error`, or the program ends where contracts abort.
    bool drop_failures = contracts_throw();
};

namespace detail {

/// Whether a name is among those that are left out (`plan_options::without`).
[[nodiscard]] inline bool is_left_out(const std::vector<std::string>& without, std::string_view name) {
    return std::find(without.begin(), without.end(), name) != without.end();
}

} // namespace detail
} // namespace optpipe
