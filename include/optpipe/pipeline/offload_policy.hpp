#pragma once

#include "optpipe/pipeline/storage.hpp"
#include "optpipe/pipeline/storage_policy.hpp"

namespace optpipe {

/// Whether a policy forbids, permits or requires offloading of a stage's entire stashes.
enum class offload_decision {
    forbid,  ///< stashes stay on the device
    permit,  ///< the planner decides
    require, ///< every stash is offloaded unless a dispatcher finds the host full or the gradient due
};

/// Storage policies with two options: keep a stash, or offload all of it.
namespace offload {

struct never {
    [[nodiscard]] constexpr bool allows(const storage_candidate& c) const { return keeps_all(c.option); }
};

/// Offloads every stash of the stages that can be offloaded.
struct always {
    [[nodiscard]] constexpr bool allows(const storage_candidate& c) const { return offloads_all(c.option); }
};

/// Offloads the stashes of the stages with the longest lifespans on each rank. `share` (0 to 1) is the share of the
/// rank's stages that are offloaded. In PipeOffload (section on selective offload), PO-H offloads half of the stages,
/// and PO-F all stages.
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
