#pragma once

#include "optpipe/core/standard.hpp"

namespace optpipe {

/// Whether a model of a problem lets microbatches overtake each other. With overtaking, the order on a later stage, or
/// in the backward, may differ from the order on stage 0.
enum class overtaking {
    /// The operations of each kind and stage run in the order of microbatches. With offloading, a model that forbids
    /// overtaking may exclude all optimal schedules. Every solution is still a schedule, but the bound only holds for
    /// schedules without overtaking.
    forbidden,
    /// Transfers belong to no microbatch. The model has the k-th forward, gradient and transfer of a stage. Transfers
    /// can't move more stashes than there are. The pooled model is a relaxation: its bound holds, but its solutions may
    /// not be schedules. The pooled model is exact without offloading. Constraint programming supports the pooled model
    /// only if storage options differ only by transfers.
    pooled,
    /// Overtaking is allowed wherever it can help. The model that allows overtaking is exact.
    allowed,
};

} // namespace optpipe
