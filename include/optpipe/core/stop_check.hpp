#pragma once

#include "optpipe/core/standard.hpp"

#include <chrono>
#include <stop_token>

namespace optpipe {

/// Asks a stop token and perhaps a deadline; a default-constructed one never stops, and works in constant expressions.
/// Borrows the token.
class stop_check {
public:
    using clock = std::chrono::steady_clock;

    constexpr stop_check() = default;
    explicit stop_check(const std::stop_token& token, clock::time_point deadline = clock::time_point::max())
        : token_{&token}, deadline_{deadline} {}
    explicit stop_check(std::stop_token&&, clock::time_point = clock::time_point::max()) = delete; // would dangle
    [[nodiscard]] constexpr bool operator()() const { return is_requested() || is_late(); }
    /// Whether a stop was requested; then intermediate results are of no use either. A deadline doesn't count.
    [[nodiscard]] constexpr bool is_requested() const { return token_ != nullptr && token_->stop_requested(); }

private:
    [[nodiscard]] constexpr bool is_late() const {
        return deadline_ != clock::time_point::max() && clock::now() >= deadline_;
    }

    const std::stop_token* token_ = nullptr;
    clock::time_point deadline_ = clock::time_point::max();
};

} // namespace optpipe
