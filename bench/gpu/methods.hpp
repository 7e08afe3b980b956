#pragma once

#include <optpipe/core/outcome.hpp>
#include <optpipe/pipeline/problem.hpp>
#include <optpipe/schedule/schedule.hpp>

#include <functional>
#include <string>
#include <vector>

namespace gpu_bench {

/// Something that makes a schedule, or says why there is none.
struct method {
    std::string name;
    std::function<optpipe::outcome<optpipe::schedule>(const optpipe::problem&)> build;
};

/// The published schedules that one stage per rank has, the constructive planner, and the search for the best plan, for
/// five seconds. Where the problem has storage options: published schedules with one for all, those that choose among
/// them by stage, and the same two. In a file of their own, as they take long to compile.
[[nodiscard]] std::vector<method> methods(const optpipe::problem& p);

} // namespace gpu_bench
