#pragma once

#include "optpipe/core/quantity.hpp"
#include "optpipe/core/standard.hpp"

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

namespace optpipe::detail {

/// The memory of one rank while operations are placed roughly by start. The ledger has the memory held now, and all
/// known releases.
class memory_ledger {
public:
    OPTPIPE_CONSTEXPR memory_ledger() = default;
    OPTPIPE_CONSTEXPR explicit memory_ledger(memory_size limit) : limit_{limit} {}

    [[nodiscard]] constexpr memory_size limit() const { return limit_; }
    /// The first time from `t` and the last `advance` on at which `amount` fits. Unlimited if the known releases don't
    /// free enough memory.
    [[nodiscard]] constexpr duration first_fit(memory_size amount, duration t) const {
        auto level = level_ + amount;
        t = std::max(t, now_);
        for (auto i = next_; i < releases_.size(); ++i) {
            const auto& [when, released] = releases_[i];
            if (when > t) {
                if (level <= limit_) return t;
                t = when;
            }
            level -= released;
        }
        return level <= limit_ ? t : duration::unlimited();
    }
    /// Whether `amount` fits at the time of the last call of `advance`.
    [[nodiscard]] constexpr bool fits(memory_size amount) const { return level_ + amount <= limit_; }
    /// Declares that nothing more takes memory before the time `now`.
    constexpr void advance(duration now) {
        now_ = std::max(now_, now);
        for (; next_ < releases_.size() && releases_[next_].when <= now_; ++next_)
            level_ -= releases_[next_].amount;
    }
    /// Takes `amount` at `now`. Implies `advance(now)`.
    constexpr void acquire(memory_size amount, duration now) {
        advance(now);
        level_ += amount;
    }
    OPTPIPE_CONSTEXPR void release(memory_size amount, duration when) {
        releases_.push_back({when, amount});
        for (auto i = releases_.size() - 1; i > next_ && releases_[i - 1].when > when; --i)
            std::swap(releases_[i], releases_[i - 1]);
    }
    /// Forgets everything except the limit.
    OPTPIPE_CONSTEXPR void clear() {
        level_ = memory_size{};
        now_ = duration{};
        next_ = 0;
        releases_.clear();
    }

private:
    struct release_at {
        duration when{};
        memory_size amount{};
    };

    memory_size limit_ = memory_size::unlimited();
    memory_size level_{};
    duration now_{};
    /// Releases, sorted by time. The releases before `next_` are part of `level_`.
    std::vector<release_at> releases_{};
    std::size_t next_ = 0;
};

} // namespace optpipe::detail
