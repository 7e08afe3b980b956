#pragma once

#include "shape.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <span>

namespace language_model {

/// Causal attention of all heads. `projected` has tokens × (3 × hidden) elements: queries, keys and values of a token
/// next to each other. Stashes the attention weights (`shape::attention_weights`).
template <class Real> class attention {
public:
    explicit attention(const shape& s) : s_{s} {}

    void forward(std::span<const Real> projected, std::span<Real> weights, std::span<Real> out) const {
        std::fill(out.begin(), out.end(), Real(0));
        for_each_query([&](std::size_t which, std::size_t token, std::size_t first, std::size_t head) {
            Real* const share = weights.data() + which * s_.sequence;
            const auto seen = token - first + 1;
            Real largest = dot(&projected[query(token, head)], &projected[key(first, head)]) * scale();
            for (std::size_t t = 0; t < s_.sequence; ++t)
                share[t] = 0;
            for (std::size_t t = 0; t < seen; ++t) {
                share[t] = dot(&projected[query(token, head)], &projected[key(first + t, head)]) * scale();
                largest = std::max(largest, share[t]);
            }
            Real sum = 0;
            for (std::size_t t = 0; t < seen; ++t)
                sum += share[t] = std::exp(share[t] - largest);
            for (std::size_t t = 0; t < seen; ++t) {
                share[t] /= sum;
                add(share[t], &projected[value(first + t, head)], &out[token * s_.hidden + head * s_.head_size()]);
            }
        });
    }

    /// `row` holds one element per token of a sequence. `projected_gradient` must not be `projected`.
    void backward(std::span<const Real> gradient, std::span<const Real> projected, std::span<const Real> weights,
                  std::span<Real> projected_gradient, std::span<Real> row) const {
        std::fill(projected_gradient.begin(), projected_gradient.end(), Real(0));
        for_each_query([&](std::size_t which, std::size_t token, std::size_t first, std::size_t head) {
            const Real* const share = weights.data() + which * s_.sequence;
            const Real* const from = &gradient[token * s_.hidden + head * s_.head_size()];
            const auto seen = token - first + 1;
            Real mean = 0;
            for (std::size_t t = 0; t < seen; ++t) {
                row[t] = dot(from, &projected[value(first + t, head)]);
                mean += share[t] * row[t];
                add(share[t], from, &projected_gradient[value(first + t, head)]);
            }
            for (std::size_t t = 0; t < seen; ++t) {
                const Real slope = share[t] * (row[t] - mean) * scale();
                add(slope, &projected[key(first + t, head)], &projected_gradient[query(token, head)]);
                add(slope, &projected[query(token, head)], &projected_gradient[key(first + t, head)]);
            }
        });
    }

private:
    template <class Visit> void for_each_query(Visit visit) const {
        std::size_t which = 0;
        for (std::size_t s = 0; s < s_.sequences; ++s)
            for (std::size_t head = 0; head < s_.heads; ++head)
                for (std::size_t t = 0; t < s_.sequence; ++t)
                    visit(which++, s * s_.sequence + t, s * s_.sequence, head);
    }
    [[nodiscard]] std::size_t query(std::size_t token, std::size_t head) const {
        return token * 3 * s_.hidden + head * s_.head_size();
    }
    [[nodiscard]] std::size_t key(std::size_t token, std::size_t head) const { return query(token, head) + s_.hidden; }
    [[nodiscard]] std::size_t value(std::size_t token, std::size_t head) const { return key(token, head) + s_.hidden; }
    [[nodiscard]] Real scale() const { return 1 / std::sqrt(static_cast<Real>(s_.head_size())); }
    [[nodiscard]] Real dot(const Real* a, const Real* b) const {
        Real sum = 0;
        for (std::size_t i = 0; i < s_.head_size(); ++i)
            sum += a[i] * b[i];
        return sum;
    }
    void add(Real factor, const Real* from, Real* to) const {
        for (std::size_t i = 0; i < s_.head_size(); ++i)
            to[i] += factor * from[i];
    }

    shape s_;
};

} // namespace language_model
