#pragma once

#include "optpipe/core/index.hpp"
#include "optpipe/core/quantity.hpp"
#include "optpipe/schedule/schedule.hpp"

#include <cstddef>
#include <limits>

namespace optpipe {

/// The ranks and times that a figure shows. The default is all ranks and times.
struct view_window {
    std::size_t first_rank = 0;
    std::size_t last_rank = std::numeric_limits<std::size_t>::max();
    duration from = -1.0 * duration::unlimited();
    duration to = duration::unlimited();

    [[nodiscard]] bool shows(rank r) const { return r.position() >= first_rank && r.position() <= last_rank; }
    /// Whether some part of the operation is in the window. An operation of length 0 is shown if it starts in the
    /// window.
    [[nodiscard]] bool shows(const timed_operation& timed) const {
        return timed.start < to && (timed.end > from || timed.start >= from);
    }
};

} // namespace optpipe
