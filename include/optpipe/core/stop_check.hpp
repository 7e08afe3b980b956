#pragma once

#include "optpipe/core/standard.hpp"

#include <stop_token>

namespace optpipe {

/// Asks a stop token, or nobody: what constant expressions can pass along. Borrows the token.
class stop_check {
public:
    constexpr stop_check() = default;
    explicit stop_check(const std::stop_token& token) : token_{&token} {}
    [[nodiscard]] constexpr bool operator()() const { return token_ != nullptr && token_->stop_requested(); }

private:
    const std::stop_token* token_ = nullptr;
};

} // namespace optpipe
