#pragma once

#include "optpipe/core/index.hpp"
#include "optpipe/core/quantity.hpp"

#include <concepts>
#include <cstddef>

namespace optpipe {

/// A policy's decision on the stashes of one stage.
enum class offload_decision {
    forbid,  ///< stashes stay on the device
    permit,  ///< the planner decides
    require, ///< every stash is offloaded, unless the host is full or its gradient comes first
};

/// A stage that could be offloaded, as seen by a policy.
struct offload_candidate {
    optpipe::stage stage{};
    /// Shortest time from the start of the stage's forward to the end of its input gradient.
    duration lifespan{};
    duration round_trip{};
    memory_size activation{};
    /// The stage's position among the stages of its rank, longest lifespan first, and the number of those stages.
    std::size_t position = 0;
    std::size_t stages_on_rank = 1;
};

template <class P> concept has_decide = requires(const P& policy, const offload_candidate& candidate) {
    { policy.decide(candidate) } -> std::same_as<offload_decision>;
};

/// Decides which stages may, must, or must not be offloaded. It isn't asked about stages without transfer times.
///
/// Semantics: the decision depends on the candidate alone.
template <class P> concept offload_policy = std::copyable<P> && has_decide<P>;

/// Fails to compile, naming the requirement that the type doesn't meet.
template <class P> consteval bool check_offload_policy() {
    static_assert(std::copyable<P>, "offload policy: must be copyable");
    static_assert(has_decide<P>, "offload policy: needs `offload_decision decide(const offload_candidate&) const`");
    return offload_policy<P>;
}

namespace offload {

struct never {
    [[nodiscard]] constexpr offload_decision decide(const offload_candidate&) const { return offload_decision::forbid; }
};

struct always {
    [[nodiscard]] constexpr offload_decision decide(const offload_candidate&) const {
        return offload_decision::require;
    }
};

/// Offloads, on each rank, the stages with the longest lifespans, up to `share` of its stages (PipeOffload, section on
/// selective offload: half of them gives PO-H, all of them PO-F).
struct longest_lifespan_first {
    double share = 0.5;
    [[nodiscard]] constexpr offload_decision decide(const offload_candidate& c) const {
        return static_cast<double>(c.position) < share * static_cast<double>(c.stages_on_rank)
                   ? offload_decision::require
                   : offload_decision::forbid;
    }
};

struct solver_decides {
    [[nodiscard]] constexpr offload_decision decide(const offload_candidate&) const { return offload_decision::permit; }
};

static_assert(offload_policy<never> && offload_policy<always> && offload_policy<longest_lifespan_first> &&
              offload_policy<solver_decides>);

} // namespace offload
} // namespace optpipe
