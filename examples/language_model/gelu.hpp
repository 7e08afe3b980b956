#pragma once

#include "host_device.hpp"

#include <cmath>

namespace language_model {

/// GELU in the usual approximation by tanh (Hendrycks and Gimpel 2016, section 2).
template <class Real> struct gelu {
    static constexpr Real bend = Real(0.044715);
    static constexpr Real steepness = Real(0.7978845608028654);

    [[nodiscard]] OPTPIPE_HOST_DEVICE static Real value(Real x) {
        return Real(0.5) * x * (1 + std::tanh(steepness * (x + bend * x * x * x)));
    }
    [[nodiscard]] OPTPIPE_HOST_DEVICE static Real slope(Real x) {
        const Real t = std::tanh(steepness * (x + bend * x * x * x));
        return Real(0.5) * (1 + t) + Real(0.5) * x * (1 - t * t) * steepness * (1 + 3 * bend * x * x);
    }
};

} // namespace language_model
