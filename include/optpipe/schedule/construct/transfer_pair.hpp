#pragma once

#include "optpipe/core/index.hpp"
#include "optpipe/core/quantity.hpp"

#include <cstddef>

namespace optpipe {

/// An offload and its reload, to be placed around computations with given times.
struct transfer_pair {
    optpipe::stage stage{};
    optpipe::microbatch microbatch{};
    /// The index of the stage's rank among the ranks on the link.
    std::size_t member = 0;
    /// The end of the stash's forward, and the start of its gradient.
    duration leaves{};
    duration due{};
    duration offload{};
    duration reload{};

    /// The start times that a placement has chosen.
    duration offload_start = duration::unlimited();
    duration reload_start = duration::unlimited();

    [[nodiscard]] constexpr bool is_in_time(duration slack) const {
        return offload_start + offload <= reload_start + slack && reload_start + reload <= due + slack;
    }
};

} // namespace optpipe
