#pragma once

#include "optpipe/pipeline/graph.hpp"

#include <cstdint>
#include <vector>

namespace optpipe {

/// The stage that goes first if a rank can run forwards of several stages.
enum class forward_preference { deepest_stage, shallowest_stage, oldest_microbatch };

/// The parameters of a dispatcher. All values give valid schedules. The defaults are only starting points of
/// `dispatch_search`, and aren't tuned.
struct dispatch_options {
    static constexpr double no_limit = 1e9; ///< a depth larger than any number of microbatches

    /// Number of microbatches in flight on a stage, in units of lifespan / cycle time. Must be positive. With a depth
    /// of 1, there are just enough microbatches to keep the busiest rank busy. A larger depth also fills the time
    /// before the first gradient.
    double depth = 1.0;
    /// Share of the device memory that may be used. 0 stands for the memory of one microbatch, and 1 stands for the
    /// limit.
    double memory_share = 1.0;
    /// A weight gradient starts if at least this share of it fits before the next operation. The share is from 0 to 1.
    double weight_fit = 1.0;
    /// A forward waits for a gradient that arrives within this share of the forward's duration.
    double forward_wait = 0.0;
    forward_preference forwards = forward_preference::deepest_stage;
    /// Share (0 to 1) of each rank's stages that always offload. Stages that hold their stashes longest come first.
    double offload_share = 0.0;
    /// Number of stashes for which memory is kept free for transfers. Stashes that would take this memory are
    /// offloaded. A negative number means that no memory is kept free.
    double staging = -1.0;
    /// A reload starts at most this multiple of its duration before its gradient is expected.
    double lead = 2.0;

    friend constexpr bool operator==(const dispatch_options&, const dispatch_options&) = default;
};

/// Exceptions to the rules of a dispatcher, one per stage and microbatch (or per stage). Exceptions are ignored where
/// memory doesn't allow them.
template <pipeline_graph Graph> struct dispatch_hints {
    enum class stash : std::uint8_t { by_rule, stays, leaves };
    enum class weight : std::uint8_t { by_rule, at_once, last };

    std::vector<stash> stashes{};
    std::vector<weight> weights{};
    /// For each stage, a change of the number of microbatches in flight.
    std::vector<int> depth{};

    constexpr explicit dispatch_hints(const Graph& g)
        : stashes(g.cells(), stash::by_rule), weights(stashes.size(), weight::by_rule), depth(g.stages(), 0) {}
};

} // namespace optpipe
