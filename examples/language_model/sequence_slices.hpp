#pragma once

#include "shape.hpp"

#include <algorithm>
#include <cstddef>
#include <span>
#include <stdexcept>
#include <vector>

namespace language_model {

/// Data that a slice of a sequence shares with the other slices, on one stage or for one of its layers. Empty for a
/// sequence that isn't sliced.
template <class Real> struct sequence_slices {
    using reals = std::span<Real>;

    /// Keys and values of the slices up to this one, in order; its own are the last.
    std::vector<reals> keys_values{};
    /// For the backward: the gradients of these keys and values, as far as later slices use them. The last entry is
    /// this slice's, unless this slice is the last of its sequence.
    std::vector<reals> gradients{};

    [[nodiscard]] bool empty() const { return keys_values.empty(); }
    [[nodiscard]] bool is_last() const { return gradients.size() < keys_values.size(); }
    /// Keys and values of the slices before this one, and their gradients.
    [[nodiscard]] std::span<const reals> before() const { return all_but_own(keys_values); }
    [[nodiscard]] std::span<const reals> gradients_before() const { return all_but_own(gradients); }
    /// One layer's part of all buffers.
    [[nodiscard]] sequence_slices layer(const shape& s, std::size_t number) const {
        sequence_slices part;
        const auto take = [&](const std::vector<reals>& from, std::vector<reals>& to) {
            for (const auto& all : from)
                to.push_back(all.subspan(number * s.keys_values(), s.keys_values()));
        };
        take(keys_values, part.keys_values);
        take(gradients, part.gradients);
        return part;
    }

private:
    [[nodiscard]] std::span<const reals> all_but_own(const std::vector<reals>& from) const {
        return std::span{from}.first(empty() ? 0 : keys_values.size() - 1);
    }
};

/// Attention of a slice; leaves its keys and values for the slices after it.
template <class Math, class Real>
void attend(Math& math, const shape& s, std::span<Real> projected, std::span<Real> weights, std::span<Real> out,
            const sequence_slices<Real>& slices) {
    if (slices.empty()) return math.attend(s, projected, weights, out);
    if constexpr (requires { math.attend(s, projected, weights, out, slices.before()); }) {
        math.attend(s, projected, weights, out, slices.before());
        const auto own = slices.keys_values.back();
        for (std::size_t i = 0; i < s.tokens(); ++i)
            math.copy(projected.subspan((3 * i + 1) * s.hidden, 2 * s.hidden),
                      own.subspan(2 * i * s.hidden, 2 * s.hidden));
    } else {
        throw std::invalid_argument{"slices of sequences need host_math"};
    }
}

/// The gradient of attention of a slice. Takes in the gradients of its keys and values that later slices left, and adds
/// to the gradients of the slices before it.
template <class Math, class Real>
void attend_back(Math& math, const shape& s, std::span<Real> gradient, std::span<Real> projected,
                 std::span<Real> weights, std::span<Real> projected_gradient, std::span<Real> scratch,
                 const sequence_slices<Real>& slices) {
    if (slices.empty()) return math.attend_back(s, gradient, projected, weights, projected_gradient, scratch);
    if constexpr (requires { math.attend(s, projected, weights, gradient, slices.before()); }) {
        const auto before = slices.gradients_before();
        if (slices.is_last())
            for (const auto& each : before)
                math.clear(each);
        math.attend_back(s, gradient, projected, weights, projected_gradient, scratch, slices.before(), before);
        if (slices.is_last()) return;
        const auto own = slices.gradients.back();
        for (std::size_t i = 0; i < s.tokens(); ++i)
            math.add(own.subspan(2 * i * s.hidden, 2 * s.hidden),
                     projected_gradient.subspan((3 * i + 1) * s.hidden, 2 * s.hidden));
    } else {
        throw std::invalid_argument{"slices of sequences need host_math"};
    }
}

} // namespace language_model
