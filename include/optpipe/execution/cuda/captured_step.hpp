#pragma once

#include "optpipe/execution/cuda/graph.hpp"
#include "optpipe/execution/cuda/stream.hpp"

#include <deque>
#include <optional>

namespace optpipe::cuda::detail {

/// A graph and the stream that it is launched into. Of the current device.
struct captured_step {
    stream origin{};
    event begin{};
    /// Where the captured streams end.
    std::deque<event> ends{};
    std::optional<graph> work{};
    bool is_under_way = false;

    /// `issue()` forks from `begin`, and joins `origin` again.
    template <class Issue> void capture(const Issue& issue) {
        work = graph::capture(origin, [&] {
            origin.record(begin);
            issue();
        });
    }
    void launch() {
        work->launch(origin);
        is_under_way = true;
    }
};

} // namespace optpipe::cuda::detail
