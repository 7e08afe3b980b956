#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

/// The engine's own mathematics, which knows nothing about pipelines.
namespace engine {

/// A row-major matrix; each row is a sample.
struct matrix {
    std::size_t rows = 0;
    std::size_t columns = 0;
    std::vector<double> values = std::vector<double>(rows * columns, 0.0);

    double& operator()(std::size_t r, std::size_t c) { return values[r * columns + c]; }
    double operator()(std::size_t r, std::size_t c) const { return values[r * columns + c]; }
    [[nodiscard]] std::size_t bytes() const { return values.size() * sizeof(double); }
};

inline matrix random_matrix(std::size_t rows, std::size_t columns, std::uint32_t seed, double size) {
    std::mt19937 random{seed};
    std::uniform_real_distribution<double> draw{-size, size};
    matrix result{rows, columns};
    for (auto& value : result.values)
        value = draw(random);
    return result;
}

/// A layer y = tanh(x w), with the gradient of w.
class layer {
public:
    layer(std::size_t width, std::uint32_t seed)
        : weights_{random_matrix(width, width, seed, 1.0 / std::sqrt(static_cast<double>(width)))}, gradient_{width,
                                                                                                              width} {}

    [[nodiscard]] matrix forward(const matrix& x) const {
        matrix y{x.rows, x.columns};
        for (std::size_t r = 0; r < x.rows; ++r)
            for (std::size_t k = 0; k < x.columns; ++k)
                for (std::size_t c = 0; c < x.columns; ++c)
                    y(r, c) += x(r, k) * weights_(k, c);
        for (auto& value : y.values)
            value = std::tanh(value);
        return y;
    }
    /// The gradient at x w, from which both halves of the backward start.
    [[nodiscard]] static matrix inner_gradient(const matrix& y, matrix dy) {
        for (std::size_t i = 0; i < dy.values.size(); ++i)
            dy.values[i] *= 1.0 - y.values[i] * y.values[i];
        return dy;
    }
    [[nodiscard]] matrix backward_input(const matrix& inner) const {
        matrix dx{inner.rows, inner.columns};
        for (std::size_t r = 0; r < inner.rows; ++r)
            for (std::size_t k = 0; k < inner.columns; ++k)
                for (std::size_t c = 0; c < inner.columns; ++c)
                    dx(r, k) += inner(r, c) * weights_(k, c);
        return dx;
    }
    void backward_weight(const matrix& x, const matrix& inner) {
        for (std::size_t r = 0; r < x.rows; ++r)
            for (std::size_t k = 0; k < x.columns; ++k)
                for (std::size_t c = 0; c < x.columns; ++c)
                    gradient_(k, c) += x(r, k) * inner(r, c);
    }
    [[nodiscard]] const matrix& gradient() const { return gradient_; }

private:
    matrix weights_;
    matrix gradient_;
};

} // namespace engine
