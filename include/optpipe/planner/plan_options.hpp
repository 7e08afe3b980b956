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
#include <limits>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

namespace optpipe {

/// How to plan. All limits hold at once.
struct plan_options {
    /// The search ends once the plan is proven optimal, once the gap is reached, or after this time. Without a time
    /// limit, the search does a fixed amount of work (one second to a few seconds). Without a time limit, the plan
    /// depends only on the problem and the seed.
    std::optional<std::chrono::duration<double>> time_limit{};
    /// Number of threads. A number of 0, or above the number of cores, means one thread per core.
    std::size_t threads = 0;
    /// Counts the processor time of all threads of the search, and may limit this time. If null, processor time is
    /// neither counted nor limited.
    std::shared_ptr<processor_share> processor{};
    std::uint64_t seed = 1;
    /// The relative gap, (objective − bound) / objective, at which the search stops. Must be from 0 to 1.
    double gap = 0.0;
    std::stop_token stop{};
    /// Whether a stop request ends the search at once and without a plan. If false, `plan` makes and checks a plan
    /// after a stop request, within a tenth of a second on large problems.
    bool stops_without_plan = false;
    /// Whether the plan depends only on the problem and the seed, whatever the number of threads. A plan may still vary
    /// if the time limit or a stop request ends the search. Searches without a time limit are always deterministic.
    bool deterministic = false;
    /// The largest number of distinct pairs (stages and kind of the backward) on a rank. A framework may have to
    /// compile each distinct pair. In a published schedule or a start with more distinct pairs, the pairs that save the
    /// least time are split.
    std::size_t most_distinct_pairs = std::numeric_limits<std::size_t>::max();
    /// Names of builders and strategies to leave out.
    std::vector<std::string> without{};
    /// A schedule to begin from, such as the schedule in use when costs change. The plan is never worse than this
    /// schedule. The search uses the order of this schedule, not its times. Storage options are found by index, not by
    /// name. If microbatches differ, the schedule may have been made for other microbatches (`carry_over`). `plan`
    /// throws `input_error` if the problem can't execute the schedule within its memory. `carry_over` tells in advance
    /// whether the problem can execute the schedule.
    std::optional<schedule> start{};
    /// If set, the objective is a percentile of the step time under random durations. In the random steps that confirm
    /// the choice, the plan's percentile is never worse than the reference's. The reference is the start or, without a
    /// start, the plan without noise.
    std::optional<robust_options> robust{};
    /// Called with every better schedule or bound, from any thread, but one call at a time. Keep the call short:
    /// strategies with new results wait for its end.
    std::function<void(const search_progress&)> progress{};
    /// A folder that keeps plans from one run to the next. If empty, no plans are kept.
    std::string cache{};
    /// Called with one sentence per difficulty that doesn't prevent a plan, such as an unreadable cache entry.
    std::function<void(std::string_view)> warn{};
    /// Whether the search calls `warn` and continues after a strategy violates a contract. If false, `plan` throws
    /// `contract_error`, or the program ends if contracts abort.
    bool drop_failures = contracts_throw();
};

namespace detail {

/// Whether a name is one of the names left out (`plan_options::without`).
[[nodiscard]] inline bool is_left_out(const std::vector<std::string>& without, std::string_view name) {
    return std::find(without.begin(), without.end(), name) != without.end();
}

} // namespace detail
} // namespace optpipe
