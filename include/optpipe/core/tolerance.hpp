#pragma once

#include "optpipe/core/quantity.hpp"

#include <cstdint>

namespace optpipe {

/// Two computed reals count as equal up to `relative` times the largest number involved.
struct tolerance {
    double relative = 1e-6;

    [[nodiscard]] constexpr double at(double scale) const { return relative * scale; }
    template <class Tag> [[nodiscard]] constexpr quantity<Tag> at(quantity<Tag> scale) const {
        return relative * scale;
    }
};

/// `all / part` rounded down, as a double because an integer type could overflow. `all` and `part` must be above 0.
/// Works in constant expressions.
template <class Tag> [[nodiscard]] constexpr double times_in(quantity<Tag> part, quantity<Tag> all) {
    constexpr double beyond_fractions = 0x1p53;
    const double times = all / part;
    return times < beyond_fractions ? static_cast<double>(static_cast<std::uint64_t>(times)) : times;
}

} // namespace optpipe
