#pragma once

#include "optpipe/core/quantity.hpp"

namespace optpipe {

/// How far two computed reals may lie apart and still count as equal: `relative` times the largest number at hand.
struct tolerance {
    double relative = 1e-6;

    [[nodiscard]] constexpr double at(double scale) const { return relative * scale; }
    template <class Tag> [[nodiscard]] constexpr quantity<Tag> at(quantity<Tag> scale) const {
        return relative * scale;
    }
};

} // namespace optpipe
