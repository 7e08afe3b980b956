#pragma once

#include <cstddef>
#include <span>

namespace language_model {

/// Row-major products. Every sum runs over increasing indices, so that results depend on the operands alone.

/// out[rows × columns] = a[rows × inner] · b[inner × columns] + bias[columns]
template <class Real>
void linear(std::span<const Real> a, std::span<const Real> b, std::span<const Real> bias, std::span<Real> out,
            std::size_t inner) {
    const auto columns = bias.size();
    const auto rows = a.size() / inner;
    for (std::size_t i = 0; i < rows; ++i) {
        Real* const to = out.data() + i * columns;
        for (std::size_t j = 0; j < columns; ++j)
            to[j] = bias[j];
        for (std::size_t k = 0; k < inner; ++k) {
            const Real factor = a[i * inner + k];
            const Real* const from = b.data() + k * columns;
            for (std::size_t j = 0; j < columns; ++j)
                to[j] += factor * from[j];
        }
    }
}

/// The gradient of a linear layer with regard to its input: out[rows × inner] = gradient[rows × columns] · bᵀ
template <class Real>
void linear_input_gradient(std::span<const Real> gradient, std::span<const Real> b, std::span<Real> out,
                           std::size_t columns) {
    const auto rows = gradient.size() / columns;
    const auto inner = b.size() / columns;
    for (std::size_t i = 0; i < rows; ++i)
        for (std::size_t k = 0; k < inner; ++k) {
            Real sum = 0;
            for (std::size_t j = 0; j < columns; ++j)
                sum += gradient[i * columns + j] * b[k * columns + j];
            out[i * inner + k] = sum;
        }
}

/// Adds the gradients with regard to weights[inner × columns] and bias[columns], for the given input[rows × inner].
template <class Real>
void linear_weight_gradient(std::span<const Real> input, std::span<const Real> gradient, std::span<Real> weights,
                            std::span<Real> bias) {
    const auto columns = bias.size();
    const auto inner = weights.size() / columns;
    const auto rows = input.size() / inner;
    for (std::size_t i = 0; i < rows; ++i) {
        const Real* const from = gradient.data() + i * columns;
        for (std::size_t k = 0; k < inner; ++k) {
            const Real factor = input[i * inner + k];
            Real* const to = weights.data() + k * columns;
            for (std::size_t j = 0; j < columns; ++j)
                to[j] += factor * from[j];
        }
        for (std::size_t j = 0; j < columns; ++j)
            bias[j] += from[j];
    }
}

} // namespace language_model
