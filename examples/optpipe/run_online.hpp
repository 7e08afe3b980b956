#pragma once

#include "commands.hpp"
#include "files.hpp"
#include "interruption.hpp"
#include <optpipe/execution/clock_time.hpp>
#include <optpipe/pipeline/problem.hpp>
#include <optpipe/schedule/time/report.hpp>

namespace program {

/// `run --online`: starts with the schedule, measures, plans again in the background, and switches to better plans.
/// `bytes_per_unit` is for the problem's memory.
int run_online(const run_options& options, const optpipe::problem& p, const optpipe::schedule_report& plan,
               optpipe::clock_time time_unit, double bytes_per_unit, outputs& files, const interruption& interrupted);

} // namespace program
