#pragma once

#include "optpipe/core/error.hpp"
#include "optpipe/core/index.hpp"

#include <string>
#include <utility>

namespace optpipe {

/// A step that couldn't be completed. The error names the rank, the operation and the reason. All ranks throw the error
/// of the rank where the failure started.
class execution_error : public error {
public:
    execution_error(optpipe::rank where, std::string operation, const std::string& reason)
        : error{"rank " + std::to_string(where.value()) + ", " + operation + ": " + reason}, rank_{where},
          operation_{std::move(operation)}, reason_{reason} {}

    [[nodiscard]] optpipe::rank rank() const { return rank_; }
    /// The operation that failed, such as "2F0" or "receive of 2F0 from rank 1". If the rank failed outside of an
    /// operation, the text describes what the rank was doing.
    [[nodiscard]] const std::string& operation() const { return operation_; }
    [[nodiscard]] const std::string& reason() const { return reason_; }

private:
    optpipe::rank rank_;
    std::string operation_;
    std::string reason_;
};

} // namespace optpipe
