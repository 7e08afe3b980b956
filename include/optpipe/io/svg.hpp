#pragma once

#include "optpipe/core/compiled.hpp"
#include "optpipe/io/svg_options.hpp"
#include "optpipe/pipeline/problem.hpp"
#include "optpipe/schedule/time/report.hpp"

#include <string>

namespace optpipe {

/// The schedule as a figure, a standalone SVG document. Shows each rank's computations, transfers, and memory in use
/// under its limit. Pointing at a box shows its operation and its times.
[[nodiscard]] std::string schedule_to_svg(const problem& p, const schedule_report& report,
                                          const svg_options& options = {});

/// A measurement and its plan on one time axis. A narrow row above each lane shows the lane's plan. A line over the
/// measured memory shows the planned memory. The times of the measurement needn't follow the rules of the problem
/// (`measurement_violations`).
[[nodiscard]] std::string overlay_to_svg(const problem& p, const schedule_report& planned,
                                         const schedule_report& measured, const svg_options& options = {});

} // namespace optpipe

#if OPTPIPE_DEFINES(io)
#include "optpipe/io/svg_figure.hpp"
#include "optpipe/io/svg_layout.hpp"
#include "optpipe/pipeline/problem.hpp"
#include "optpipe/schedule/time/report.hpp"

#include <string>

namespace optpipe {

OPTPIPE_INLINE std::string schedule_to_svg(const problem& p, const schedule_report& report,
                                           const svg_options& options) {
    return detail::svg_figure{p, report, nullptr, options}.draw();
}

OPTPIPE_INLINE std::string overlay_to_svg(const problem& p, const schedule_report& planned,
                                          const schedule_report& measured, const svg_options& options) {
    return detail::svg_figure{p, measured, &planned, options}.draw();
}

} // namespace optpipe
#endif
