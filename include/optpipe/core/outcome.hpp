#pragma once

#include "optpipe/core/bounded_text.hpp"
#include "optpipe/core/contract.hpp"
#include "optpipe/core/error.hpp"
#include "optpipe/core/format.hpp"
#include "optpipe/core/index.hpp"
#include "optpipe/core/quantity.hpp"

#include <cstddef>
#include <string>

namespace optpipe {

enum class refusal_reason {
    does_not_apply,   ///< the method doesn't handle this kind of problem
    over_memory,      ///< the schedule needs more device memory than a rank has
    over_host_memory, ///< the schedule needs more host memory than a rank has
    not_executable,   ///< the order lacks operations, or contains operations that wait for each other
};

/// The reason why there is no schedule. A missing schedule is an outcome, not an error.
struct refusal {
    refusal_reason reason = refusal_reason::does_not_apply;
    /// A sentence that states the unmet condition, without a full stop. Numbers can be inserted: `{"takes at most ",
    /// most, " microbatches"}`.
    bounded_text<200> sentence{};
    /// The rank that lacks memory or can't execute its order.
    optpipe::rank rank{};
    /// The least memory that the rank would need, and the rank's limit. Set only if memory is short.
    memory_size needed{};
    memory_size limit{};
    /// The index, on `rank`, of the operation that can't be executed. Set only if an order can't be executed.
    std::size_t position = 0;
};

/// A refusal for a problem of a kind that the method doesn't handle.
[[nodiscard]] constexpr refusal does_not_apply(const bounded_text<200>& sentence) {
    refusal why;
    why.sentence = sentence;
    return why;
}

inline std::string describe(const refusal& why) {
    std::string text{why.sentence.view()};
    if (why.reason != refusal_reason::over_memory && why.reason != refusal_reason::over_host_memory) return text;
    const std::string which = why.reason == refusal_reason::over_memory ? "memory" : "host memory";
    if (!text.empty()) text += ": ";
    return text + "rank " + std::to_string(why.rank.value()) + " needs " + format_number(why.needed) + " of " + which +
           ", its limit is " + format_number(why.limit);
}

/// The exception that reports a refusal, thrown by `outcome::value`.
class refusal_error : public error {
public:
    explicit refusal_error(const refusal& why) : error{describe(why)}, why_{why} {}
    [[nodiscard]] const refusal& why() const { return why_; }

private:
    refusal why_;
};

/// A value, or the reason why there is none. This class isn't a `std::variant`, because clang 14 has no constexpr
/// variants.
template <class T> class outcome {
public:
    constexpr outcome() = default;
    constexpr outcome(T value)
        : value_{static_cast<T&&>(value)}, has_value_{true} {} // NOLINT(google-explicit-constructor)
    constexpr outcome(const refusal& why) : why_{why} {}       // NOLINT(google-explicit-constructor)

    [[nodiscard]] constexpr bool has_value() const { return has_value_; }
    constexpr explicit operator bool() const { return has_value_; }
    constexpr const T& operator*() const& {
        OPTPIPE_EXPECT(has_value_, "outcome: there is no value");
        return value_;
    }
    constexpr T&& operator*() && {
        OPTPIPE_EXPECT(has_value_, "outcome: there is no value");
        return static_cast<T&&>(value_);
    }
    constexpr const T* operator->() const { return &**this; }
    /// The value. Throws `refusal_error` if there is no value.
    [[nodiscard]] constexpr const T& value() const& {
        if (!has_value_) throw refusal_error{why_};
        return value_;
    }
    [[nodiscard]] constexpr T&& value() && {
        if (!has_value_) throw refusal_error{why_};
        return static_cast<T&&>(value_);
    }
    /// The reason. Requires that there is no value.
    [[nodiscard]] constexpr const refusal& why() const {
        OPTPIPE_EXPECT(!has_value_, "outcome: there is a value");
        return why_;
    }

private:
    T value_{};
    refusal why_{};
    bool has_value_ = false;
};

} // namespace optpipe
