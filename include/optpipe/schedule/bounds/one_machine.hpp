#pragma once

#include "optpipe/core/quantity.hpp"

#include <algorithm>
#include <cstddef>
#include <vector>

namespace optpipe {

/// A job for one machine: it starts at `head` or later, and `tail` passes after its end.
struct machine_job {
    duration head{};
    duration length{};
    duration tail{};
};

/// The preemptive one-machine bound: the least possible max of end + tail (Jackson 1955, Carlier 1982). At every moment
/// the job with the longest tail runs. O(n log n).
[[nodiscard]] OPTPIPE_CONSTEXPR duration one_machine_bound(std::vector<machine_job> jobs) {
    std::sort(jobs.begin(), jobs.end(), [](const machine_job& a, const machine_job& b) { return a.head < b.head; });
    const auto shorter_tail = [](const machine_job& a, const machine_job& b) { return a.tail < b.tail; };
    std::vector<machine_job> waiting;
    duration now{};
    duration bound{};
    for (std::size_t next = 0; next < jobs.size() || !waiting.empty();) {
        if (waiting.empty()) now = std::max(now, jobs[next].head);
        for (; next < jobs.size() && jobs[next].head <= now; ++next) {
            waiting.push_back(jobs[next]);
            std::push_heap(waiting.begin(), waiting.end(), shorter_tail);
        }
        std::pop_heap(waiting.begin(), waiting.end(), shorter_tail);
        auto job = waiting.back();
        waiting.pop_back();
        const auto until_next = next < jobs.size() ? jobs[next].head - now : job.length;
        const auto run = std::min(job.length, until_next);
        now += run;
        job.length -= run;
        if (job.length > duration{}) {
            waiting.push_back(job);
            std::push_heap(waiting.begin(), waiting.end(), shorter_tail);
        } else {
            bound = std::max(bound, now + job.tail);
        }
    }
    return bound;
}

} // namespace optpipe
