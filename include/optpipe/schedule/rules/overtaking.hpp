#pragma once

#include "optpipe/core/standard.hpp"

namespace optpipe {

/// Whether microbatches may come in another order on a later stage, or backward, than on stage 0: how a model of a
/// problem treats it.
enum class overtaking {
    /// Every kind of operation runs in the order of the microbatches on every stage. With offloading this may exclude
    /// all optima: solutions are schedules, but a bound is one on those schedules alone.
    forbidden,
    /// Transfers belong to no microbatch: only the k-th forward, gradient and transfer of a stage count, and no more
    /// stashes are taken than are available. A relaxation whose bound holds for all schedules, but whose solutions need
    /// not be schedules. Exact without offloading, and in constraint programming with lists of storage options.
    pooled,
    /// Wherever it can help: exact.
    allowed,
};

} // namespace optpipe
