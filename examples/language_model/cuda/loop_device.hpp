#pragma once

#include "product.hpp"

#include <algorithm>
#include <cstddef>
#include <span>
#include <stdexcept>
#include <vector>

namespace language_model {

/// A team of one member.
struct loop_team {
    template <class Value> [[nodiscard]] float sum(std::size_t count, const Value& value) const {
        float total = 0.0F;
        for (std::size_t j = 0; j < count; ++j)
            total += value(j);
        return total;
    }
    template <class Value> [[nodiscard]] float largest(std::size_t count, const Value& value) const {
        float most = value(0);
        for (std::size_t j = 1; j < count; ++j)
            most = std::max(most, value(j));
        return most;
    }
    template <class Body> void each(std::size_t count, const Body& body) const {
        for (std::size_t j = 0; j < count; ++j)
            body(j);
    }
    template <class Body> void once(const Body& body) const { body(); }
    void synchronize() const {}
};

/// A simulated device (`device_math`): its kernels are loops, so that GPU computations can be tested without a GPU.
class loop_device {
public:
    template <class T> using array = std::vector<T>;

    template <class T> [[nodiscard]] static array<T> store(const std::vector<T>& values) { return values; }
    template <class T> [[nodiscard]] static std::vector<T> load(std::span<const T> from) {
        return {from.begin(), from.end()};
    }
    template <class T> [[nodiscard]] static std::vector<T> load_in_order(std::span<const T> from) {
        return load<T>(from);
    }
    template <class T> static void overwrite(std::span<T> to, std::span<const T> from) {
        std::copy(from.begin(), from.end(), to.begin());
    }

    template <class Body> static void for_each(std::size_t count, const Body& body) {
        for (std::size_t i = 0; i < count; ++i)
            body(i);
    }
    template <class Body> static void for_each_row(std::size_t rows, const Body& body) {
        for (std::size_t i = 0; i < rows; ++i)
            body(i, loop_team{});
    }
    template <class Term>
    static void add_column_sums(std::size_t rows, std::size_t columns, const Term& term, float* out) {
        for (std::size_t j = 0; j < columns; ++j)
            for (std::size_t i = 0; i < rows; ++i)
                out[j] += term(i, j);
    }
    /// Refuses the same leading dimensions as cuBLAS.
    static void multiply(const product& p) {
        if (p.a_leading < (p.transpose_a ? p.inner : p.rows) || p.b_leading < (p.transpose_b ? p.columns : p.inner) ||
            p.c_leading < p.rows)
            throw std::invalid_argument{"multiply: a leading dimension is smaller than its matrix"};
        for (std::size_t n = 0; n < p.count; ++n)
            for (std::size_t j = 0; j < p.columns; ++j)
                for (std::size_t i = 0; i < p.rows; ++i) {
                    float& to = p.c[n * p.c_stride + i + j * p.c_leading];
                    to = p.alpha * dot(p, n, i, j) + (p.beta == 0.0F ? 0.0F : p.beta * to);
                }
    }
    static void copy(const float* from, float* to, std::size_t count) { std::copy(from, from + count, to); }
    static void clear(float* to, std::size_t count) { std::fill(to, to + count, 0.0F); }

private:
    static float dot(const product& p, std::size_t n, std::size_t i, std::size_t j) {
        const float* const a = p.a + n * p.a_stride;
        const float* const b = p.b + n * p.b_stride;
        float sum = 0.0F;
        for (std::size_t k = 0; k < p.inner; ++k)
            sum += a[p.transpose_a ? k + i * p.a_leading : i + k * p.a_leading] *
                   b[p.transpose_b ? j + k * p.b_leading : k + j * p.b_leading];
        return sum;
    }
};

} // namespace language_model
