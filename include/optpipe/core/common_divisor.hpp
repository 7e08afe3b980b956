#pragma once

#include "optpipe/core/standard.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <numeric>
#include <optional>
#include <span>

namespace optpipe {

/// The greatest common divisor of decimals with few digits, if it can be determined.
class common_divisor {
public:
    /// Adds a value, or a decimal that differs from the value by at most `most_off`. Returns false if the value has too
    /// many digits.
    bool add(double value, double most_off = std::numeric_limits<double>::infinity()) {
        value = std::abs(value);
        if (value == 0.0) return true;
        for (std::size_t power = power_; power < powers; ++power) {
            const double scaled = value * scale_of(power);
            if (scaled > largest) return false;
            const double nearest = std::round(scaled);
            const double off = std::abs(scaled - nearest);
            const double most = std::min({exactness * std::max(1.0, nearest), farthest, most_off * scale_of(power)});
            if (nearest < 1.0 || off > most) continue;
            raise_to(power);
            common_ = std::gcd(common_, static_cast<std::int64_t>(nearest));
            return true;
        }
        return false;
    }
    /// The divisor, or 0 if only zeros were added.
    [[nodiscard]] double value() const { return static_cast<double>(common_) / scale_of(power_); }

private:
    static constexpr std::size_t powers = 7;
    static constexpr double largest = 1e12;
    static constexpr double exactness = 1e-12;
    static constexpr double farthest = 1e-3; ///< Largest accepted distance from a multiple. Without this limit, every
                                             ///< large value would pass.

    static double scale_of(std::size_t power) {
        constexpr std::array<double, powers> scales{1.0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6};
        return scales[power];
    }
    void raise_to(std::size_t power) {
        for (; power_ < power; ++power_)
            common_ *= 10;
    }

    std::int64_t common_ = 0;
    std::size_t power_ = 0;
};

/// The divisor of all finite values, or 0 if all are zeros. Empty if a value has too many digits.
[[nodiscard]] inline std::optional<double> common_divisor_of(std::span<const double> values) {
    common_divisor measure;
    for (const double v : values)
        if (std::isfinite(v) && !measure.add(v)) return std::nullopt;
    return measure.value();
}

} // namespace optpipe
