#pragma once

#include "optpipe/core/compiled.hpp"
#include "optpipe/io/svg_options.hpp"
#include "optpipe/pipeline/problem.hpp"
#include "optpipe/schedule/time/report.hpp"

#include <string>

namespace optpipe {

/// The schedule as a figure, a standalone SVG document: for each rank what it computes, its transfers to the host and
/// back, and how much memory it holds under its limit. Pointing at a box shows its spelling and its times.
[[nodiscard]] std::string schedule_to_svg(const problem& p, const schedule_report& report,
                                          const svg_options& options = {});

/// A measurement over its plan, on one axis: each lane as it ran, in a narrow row above it the plan, and the planned
/// memory as a line over the measured. Times of the measurement may be any, see `measurement_violations`.
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
