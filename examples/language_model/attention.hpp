#pragma once

#include "shape.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <span>

namespace language_model {

/// Causal attention of all heads. `projected` has tokens × (3 × hidden) elements: queries, keys and values of a token
/// next to each other. Stashes the attention weights (`shape::attention_weights`). `before` has the keys and values of
/// the slices before this one, each tokens × (2 × hidden).
template <class Real> class attention {
public:
    using slices = std::span<const std::span<Real>>;

    explicit attention(const shape& s) : s_{s} {}

    void forward(std::span<const Real> projected, std::span<Real> weights, std::span<Real> out,
                 slices before = {}) const {
        const auto key_of = [&](std::size_t t, std::size_t first, std::size_t head) {
            return at<const Real>(projected, before, t, first, head);
        };
        std::fill(out.begin(), out.end(), Real(0));
        for_each_query([&](std::size_t which, std::size_t token, std::size_t first, std::size_t head) {
            Real* const share = weights.data() + which * s_.context();
            const auto seen = before.size() * s_.sequence + token - first + 1;
            Real largest = dot(&projected[query(token, head)], key_of(0, first, head)) * scale();
            for (std::size_t t = 0; t < s_.context(); ++t)
                share[t] = 0;
            for (std::size_t t = 0; t < seen; ++t) {
                share[t] = dot(&projected[query(token, head)], key_of(t, first, head)) * scale();
                largest = std::max(largest, share[t]);
            }
            Real sum = 0;
            for (std::size_t t = 0; t < seen; ++t)
                sum += share[t] = std::exp(share[t] - largest);
            for (std::size_t t = 0; t < seen; ++t) {
                share[t] /= sum;
                add(share[t], key_of(t, first, head) + s_.hidden, &out[token * s_.hidden + head * s_.head_size()]);
            }
        });
    }

    /// `row` holds one element per token of a sequence. `projected_gradient` must not be `projected`. Adds to the
    /// gradients of the slices before this one.
    void backward(std::span<const Real> gradient, std::span<const Real> projected, std::span<const Real> weights,
                  std::span<Real> projected_gradient, std::span<Real> row, slices before = {},
                  slices gradients_before = {}) const {
        std::fill(projected_gradient.begin(), projected_gradient.end(), Real(0));
        for_each_query([&](std::size_t which, std::size_t token, std::size_t first, std::size_t head) {
            const Real* const share = weights.data() + which * s_.context();
            const Real* const from = &gradient[token * s_.hidden + head * s_.head_size()];
            const auto seen = before.size() * s_.sequence + token - first + 1;
            const auto key_of = [&](std::size_t t) { return at<const Real>(projected, before, t, first, head); };
            const auto gradient_of = [&](std::size_t t) {
                return at<Real>(projected_gradient, gradients_before, t, first, head);
            };
            Real mean = 0;
            for (std::size_t t = 0; t < seen; ++t) {
                row[t] = dot(from, key_of(t) + s_.hidden);
                mean += share[t] * row[t];
                add(share[t], from, gradient_of(t) + s_.hidden);
            }
            for (std::size_t t = 0; t < seen; ++t) {
                const Real slope = share[t] * (row[t] - mean) * scale();
                add(slope, key_of(t), &projected_gradient[query(token, head)]);
                add(slope, &projected[query(token, head)], gradient_of(t));
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
    /// The key of token t of the sequence whose own tokens begin at `first`; its value is `hidden` elements further.
    template <class Element>
    [[nodiscard]] Element* at(std::span<Element> projected, slices before, std::size_t t, std::size_t first,
                              std::size_t head) const {
        const auto slice = t / s_.sequence;
        const auto token = first + t % s_.sequence;
        if (slice < before.size()) return &before[slice][token * 2 * s_.hidden + head * s_.head_size()];
        return &projected[key(token, head)];
    }
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
