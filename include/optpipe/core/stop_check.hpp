#pragma once

#include "optpipe/core/standard.hpp"

#include <chrono>
#include <concepts>
#include <stop_token>
#include <utility>

namespace optpipe {

/// A condition on which a computation stops. `stop_when` makes a condition from a predicate.
class stop_condition {
public:
    [[nodiscard]] constexpr virtual bool holds() const = 0;

protected:
    constexpr stop_condition() = default;
    stop_condition(const stop_condition&) = default;
    stop_condition& operator=(const stop_condition&) = default;
    ~stop_condition() = default;
};

/// A stop condition that holds once the predicate returns true: `const stop_when enough{[&] { return found > 3; }};`,
/// then `bounds_of(p, enough)`.
template <class Predicate>
requires std::predicate<const Predicate&>
class stop_when final : public stop_condition {
public:
    explicit constexpr stop_when(Predicate predicate) : predicate_{std::move(predicate)} {}
    [[nodiscard]] constexpr bool holds() const override { return predicate_(); }

private:
    Predicate predicate_;
};

/// Tells a computation when to stop: asks a stop token, a deadline or a condition. A default-constructed check never
/// stops. Works in constant expressions. Borrows the token or the condition.
class stop_check {
public:
    using clock = std::chrono::steady_clock;

    constexpr stop_check() = default;
    explicit stop_check(const std::stop_token& token, clock::time_point deadline = clock::time_point::max())
        : token_{&token}, deadline_{deadline} {}
    explicit stop_check(std::stop_token&&, clock::time_point = clock::time_point::max()) = delete; // would dangle
    constexpr stop_check(const stop_condition& condition)
        : condition_{&condition} {}              // NOLINT(google-explicit-constructor)
    stop_check(const stop_condition&&) = delete; // would dangle
    [[nodiscard]] constexpr bool operator()() const {
        return is_requested() || (condition_ != nullptr && condition_->holds()) || is_late();
    }
    /// Whether the stop token requests a stop. After a stop request, even intermediate results are no longer needed.
    /// Deadlines and conditions are ignored.
    [[nodiscard]] constexpr bool is_requested() const { return token_ != nullptr && token_->stop_requested(); }

private:
    [[nodiscard]] constexpr bool is_late() const {
        return deadline_ != clock::time_point::max() && clock::now() >= deadline_;
    }

    const std::stop_token* token_ = nullptr;
    const stop_condition* condition_ = nullptr;
    clock::time_point deadline_ = clock::time_point::max();
};

} // namespace optpipe
