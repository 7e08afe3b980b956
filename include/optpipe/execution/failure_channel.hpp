#pragma once

#include "optpipe/execution/error.hpp"

#include <optional>

namespace optpipe::execution {

/// Tells all ranks at once that one rank has failed. A failure channel serves executors that can't tell other processes
/// themselves, such as NCCL's. Any thread may use a failure channel.
class failure_channel {
public:
    /// Announces that this rank has failed. If several ranks fail, only the failure that reaches rank 0 first counts.
    virtual void tell(const execution_error& what) = 0;
    /// The failure of a rank, as soon as this rank learns of it.
    [[nodiscard]] virtual std::optional<execution_error> failure() const = 0;

protected:
    ~failure_channel() = default;
};

/// Throws the failure of `by`, if there is one; does nothing if `by` is null.
inline void check_failure(const failure_channel* by) {
    if (!by) return;
    if (const auto what = by->failure()) throw *what;
}

} // namespace optpipe::execution
