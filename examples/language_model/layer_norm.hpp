#pragma once

#include <cmath>
#include <cstddef>
#include <span>

namespace language_model {

/// Layer norm over rows of `scale.size()` elements. Stashes the normalized rows and one inverse deviation per row.
template <class Real>
void layer_norm(std::span<const Real> input, std::span<const Real> scale, std::span<const Real> shift,
                std::span<Real> normalized, std::span<Real> inverse_deviation, std::span<Real> out) {
    const auto width = scale.size();
    const auto count = static_cast<Real>(width);
    for (std::size_t i = 0; i < inverse_deviation.size(); ++i) {
        const auto row = input.subspan(i * width, width);
        Real mean = 0;
        for (const Real x : row)
            mean += x;
        mean /= count;
        Real variance = 0;
        for (const Real x : row)
            variance += (x - mean) * (x - mean);
        const Real inverse = 1 / std::sqrt(variance / count + Real(1e-5));
        inverse_deviation[i] = inverse;
        for (std::size_t j = 0; j < width; ++j) {
            normalized[i * width + j] = (row[j] - mean) * inverse;
            out[i * width + j] = normalized[i * width + j] * scale[j] + shift[j];
        }
    }
}

/// Recomputes the output of layer norm from its stash.
template <class Real>
void layer_norm_again(std::span<const Real> normalized, std::span<const Real> scale, std::span<const Real> shift,
                      std::span<Real> out) {
    const auto width = scale.size();
    for (std::size_t i = 0; i < normalized.size(); ++i)
        out[i] = normalized[i] * scale[i % width] + shift[i % width];
}

/// Adds the gradient with regard to the input to `out`.
template <class Real>
void layer_norm_input_gradient(std::span<const Real> gradient, std::span<const Real> scale,
                               std::span<const Real> normalized, std::span<const Real> inverse_deviation,
                               std::span<Real> out) {
    const auto width = scale.size();
    const auto count = static_cast<Real>(width);
    for (std::size_t i = 0; i < inverse_deviation.size(); ++i) {
        Real sum = 0;
        Real projection = 0;
        for (std::size_t j = i * width; j < (i + 1) * width; ++j) {
            const Real scaled = gradient[j] * scale[j - i * width];
            sum += scaled;
            projection += scaled * normalized[j];
        }
        for (std::size_t j = i * width; j < (i + 1) * width; ++j)
            out[j] += inverse_deviation[i] *
                      (gradient[j] * scale[j - i * width] - sum / count - normalized[j] * projection / count);
    }
}

template <class Real>
void layer_norm_weight_gradient(std::span<const Real> gradient, std::span<const Real> normalized, std::span<Real> scale,
                                std::span<Real> shift) {
    const auto width = scale.size();
    for (std::size_t i = 0; i < gradient.size(); ++i) {
        scale[i % width] += gradient[i] * normalized[i];
        shift[i % width] += gradient[i];
    }
}

} // namespace language_model
