#pragma once

#include "optpipe/pipeline/storage.hpp"
#include "optpipe/pipeline/storage_policy.hpp"

namespace optpipe {

/// Whether a policy forbids, permits or requires that the stashes of a stage are offloaded as a whole.
enum class offload_decision {
    forbid,  ///< stashes stay on the device
    permit,  ///< the planner decides
    require, ///< every stash is offloaded, unless a dispatcher finds that the host is full or the gradient is due
};

/// Storage policies that allow no other options than keeping a stash and offloading it as a whole.
namespace offload {

struct never {
    [[nodiscard]] constexpr bool allows(const storage_candidate& c) const { return keeps_all(c.option); }
};

/// Offloads every stash of the stages that can be offloaded.
struct always {
    [[nodiscard]] constexpr bool allows(const storage_candidate& c) const { return offloads_all(c.option); }
};

/// Offloads the stashes of some stages: on each rank, those with the longest lifespans. `share` is their share of the
/// rank's stages (PipeOffload, section on selective offload: half of the stages for PO-H, all stages for PO-F).
struct longest_lifespan_first {
    double share = 0.5;
    [[nodiscard]] constexpr bool allows(const storage_candidate& c) const {
        return c.is_among_longest(share) ? offloads_all(c.option) : keeps_all(c.option);
    }
};

struct solver_decides {
    [[nodiscard]] constexpr bool allows(const storage_candidate& c) const {
        return keeps_all(c.option) || offloads_all(c.option);
    }
};

static_assert(storage_policy<never> && storage_policy<always> && storage_policy<longest_lifespan_first> &&
              storage_policy<solver_decides>);

} // namespace offload
} // namespace optpipe
