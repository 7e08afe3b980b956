#pragma once

#include "optpipe/execution/cuda/graph.hpp"
#include "optpipe/execution/cuda/stream.hpp"

#include <deque>
#include <optional>

namespace optpipe::cuda::detail {

/// A graph, and the events with which it was captured. Belongs to the current device.
struct captured_step {
    event begin{};
    /// Events at the ends of the captured streams.
    std::deque<event> ends{};
    std::optional<graph> work{};

    /// Captures the work of `issue()`. The streams that `issue()` uses must wait for `begin` first, and `origin` must
    /// wait for these streams at the end.
    template <class Issue> void capture(stream_ref origin, const Issue& issue) {
        work = graph::capture(origin, [&] {
            origin.record(begin);
            issue();
        });
    }
};

} // namespace optpipe::cuda::detail
