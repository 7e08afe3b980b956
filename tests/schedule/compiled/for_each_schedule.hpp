#pragma once

#include "optpipe/pipeline/problem.hpp"
#include "optpipe/schedule/schedule.hpp"

#include <functional>
#include <string>
#include <vector>

/// All builders, compiled once for the tests that want what they build and not them.
namespace compiled {

using visit_schedule = std::function<void(const std::string& method, const optpipe::schedule&)>;

/// What each builder makes of a problem, if it makes anything.
void for_each_schedule(const optpipe::problem& p, const visit_schedule& visit);
std::vector<std::string> all_methods();

} // namespace compiled
