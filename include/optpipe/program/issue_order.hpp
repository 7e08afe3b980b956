#pragma once

#include "optpipe/core/contract.hpp"
#include "optpipe/program/ir.hpp"

#include <cstddef>
#include <vector>

namespace optpipe {

/// One task of a rank, for training loops without the library's executors.
struct issued_task {
    task_label what{};
    lane_kind lane = lane_kind::compute;
    /// Positions of the tasks that must end before this task starts. All tasks in `after` are on other lanes and
    /// earlier in the list.
    std::vector<std::size_t> after{};
    friend bool operator==(const issued_task&, const issued_task&) = default;
};

/// A program's tasks, in an order in which one thread may issue all tasks. Tasks are computations, transfers, sends,
/// receives, reductions and updates. A loop that runs these tasks doesn't need the planned times. Each lane (a stream,
/// or a thread) runs its tasks in this order, beside the other lanes. A lane starts a task once all tasks in the task's
/// `after` have ended. Tasks wait only for inputs, and for memory that must be freed first. A loop that follows the
/// plan's allocations (io/README.md, rules 8 and 9) never exceeds the plan's peak.
///
/// A single thread may also run all tasks in this order, without lanes and `after`. One thread per rank doesn't
/// deadlock, even if sends block until received (`check_programs`). However, computations on a single thread wait for
/// messages and transfers.
///
/// A pair is one task, labelled with its forward and its backward.
///
/// Contract: every exchange has only one message, as with `message_lanes::separate`.
[[nodiscard]] inline std::vector<issued_task> issue_order(const rank_program& p) {
    std::vector<std::size_t> recorded_by(p.markers);
    std::vector<issued_task> tasks;
    for (const auto& i : p.instructions) {
        OPTPIPE_EXPECT(i.parts <= 1, "issue_order: lower with message_lanes::separate");
        if (i.records != no_marker) recorded_by[i.records.position()] = tasks.size();
        auto& task = tasks.emplace_back(issued_task{label_of(p, i), p.lanes[i.lane], {}});
        for (std::size_t w = 0; w < i.waits; ++w)
            task.after.push_back(recorded_by[p.waits[i.first_wait + w].position()]);
    }
    return tasks;
}

} // namespace optpipe
