#pragma once

#include "optpipe/core/standard.hpp"

namespace optpipe {

/// Whether a model of a problem lets microbatches overtake each other. With overtaking, the order of microbatches on a
/// later stage, or in the backward, may differ from their order on stage 0.
enum class overtaking {
    /// The operations of each kind and stage run in the order of microbatches. With offloading, a model that forbids
    /// overtaking may exclude all optimal schedules. Every solution of the model is still a schedule, but the model's
    /// bound holds only for schedules without overtaking.
    forbidden,
    /// Transfers belong to no microbatch. The model only has the k-th forward, gradient and transfer of a stage, and
    /// transfers can't move more stashes than there are. The pooled model is a relaxation: its bound holds for all
    /// schedules, but not all of its solutions are schedules. The pooled model is exact without offloading. Constraint
    /// programming supports the pooled model only if storage options differ only by transfers.
    pooled,
    /// Overtaking is allowed wherever it can help. The model that allows overtaking is exact.
    allowed,
};

} // namespace optpipe
