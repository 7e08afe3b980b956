#pragma once

#include "optpipe/pipeline/problem.hpp"
#include "optpipe/schedule/schedule.hpp"

#include <functional>
#include <string>
#include <vector>

/// All builders, compiled once for tests that need only their schedules.
namespace compiled {

using visit_schedule = std::function<void(const std::string& method, const optpipe::schedule&)>;

/// Calls `visit` with the schedule of each builder that has one.
void for_each_schedule(const optpipe::problem& p, const visit_schedule& visit);
std::vector<std::string> all_methods();

} // namespace compiled
