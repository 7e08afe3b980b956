#pragma once

#include "optpipe/core/standard.hpp"

namespace optpipe {

/// Whether a model of a problem lets microbatches come in another order on a later stage, or backward, than on stage 0.
enum class overtaking {
    /// The operations of each kind and stage run in the order of microbatches. With offloading this may exclude all
    /// optima: solutions are schedules, but a bound holds only for schedules of this form.
    forbidden,
    /// Transfers belong to no microbatch: only the k-th forward, gradient and transfer of a stage matter, and no more
    /// stashes are taken than are available. This is a relaxation: its bound holds for all schedules, but its solutions
    /// may not be schedules. It is exact without offloading, and in constraint programming exists only if storage
    /// options differ in nothing but transfers.
    pooled,
    /// Allowed wherever it can help: exact.
    allowed,
};

} // namespace optpipe
