#pragma once

#include "optpipe/execution/error.hpp"

#include <optional>

namespace optpipe::execution {

/// Tells all ranks at once that one has failed, for executors that can't themselves, as NCCL's. For any thread.
class failure_channel {
public:
    /// This rank has failed. Of all failures the first that rank 0 hears of counts.
    virtual void tell(const execution_error& what) = 0;
    /// What failed, as soon as this rank hears of it.
    [[nodiscard]] virtual std::optional<execution_error> failure() const = 0;

protected:
    ~failure_channel() = default;
};

/// Throws what failed; null: nobody tells.
inline void check_failure(const failure_channel* by) {
    if (!by) return;
    if (const auto what = by->failure()) throw *what;
}

} // namespace optpipe::execution
