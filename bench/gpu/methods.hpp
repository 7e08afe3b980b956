#pragma once

#include <optpipe/core/outcome.hpp>
#include <optpipe/pipeline/problem.hpp>
#include <optpipe/schedule/schedule.hpp>

#include <functional>
#include <string>
#include <vector>

namespace gpu_bench {

/// A method that makes a schedule, or gives the reason why there is none.
struct method {
    std::string name;
    std::function<optpipe::outcome<optpipe::schedule>(const optpipe::problem&)> build;
};

/// The published schedules for one stage per rank, the constructive planner, and the search for the best plan, for five
/// seconds. If the problem has storage options: published schedules with one option for all stages, those that choose
/// among them by stage, and the same two. They have their own source file, because they take long to compile.
[[nodiscard]] std::vector<method> methods(const optpipe::problem& p);

} // namespace gpu_bench
