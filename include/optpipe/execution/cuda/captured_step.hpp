#pragma once

#include "optpipe/execution/cuda/graph.hpp"
#include "optpipe/execution/cuda/stream.hpp"

#include <deque>
#include <optional>

namespace optpipe::cuda::detail {

/// A graph, and the events used to capture it. Belongs to the current device.
struct captured_step {
    event begin{};
    /// Events at the ends of the captured streams.
    std::deque<event> ends{};
    std::optional<graph> work{};

    /// Captures the work of `issue()` as a graph. All streams that `issue()` uses must first wait for `begin`. At the
    /// end, `origin` must wait for all streams that `issue()` uses.
    template <class Issue> void capture(stream_ref origin, const Issue& issue) {
        work = graph::capture(origin, [&] {
            origin.record(begin);
            issue();
        });
    }
};

} // namespace optpipe::cuda::detail
