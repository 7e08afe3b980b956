#pragma once

#include "optpipe/execution/error.hpp"

#include <optional>

namespace optpipe::execution {

/// Tells all ranks immediately that one rank has failed. Some executors, such as NCCL's, need a failure channel to
/// reach other processes. Any thread may use a failure channel.
class failure_channel {
public:
    /// Announces that this rank has failed. If several ranks fail, only the failure that reaches rank 0 first counts.
    virtual void tell(const execution_error& what) = 0;
    /// The failure of a rank. Empty if this rank knows of no failure.
    [[nodiscard]] virtual std::optional<execution_error> failure() const = 0;

protected:
    ~failure_channel() = default;
};

/// Throws the failure that `by` reports, if any. Does nothing if `by` is null.
inline void check_failure(const failure_channel* by) {
    if (!by) return;
    if (const auto what = by->failure()) throw *what;
}

} // namespace optpipe::execution
