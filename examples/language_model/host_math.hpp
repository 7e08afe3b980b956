#pragma once

#include "attention.hpp"
#include "gelu.hpp"
#include "layer_norm.hpp"
#include "matrix.hpp"
#include "shape.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace language_model {

/// The mathematics of a stage: loops on the host. Another implementation has the same members, and may put its work
/// into a queue; then only `take_total` waits for it.
///
/// All matrices are row-major; their shapes follow from the sizes of the vectors passed with them. `input_gradient`
/// functions write or add as documented, `weight_gradient` functions add.
template <class Real> class host_math {
public:
    using real = Real;
    using reals = std::span<Real>;
    using const_reals = std::span<const Real>;
    using bytes = std::span<const std::uint8_t>;
    using storage = std::vector<Real>;

    [[nodiscard]] static storage store(std::vector<Real> values) { return values; }
    /// Returns the sum, and sets all elements to zero.
    [[nodiscard]] static double take_total(reals values) {
        double total = 0.0;
        for (Real& x : values) {
            total += static_cast<double>(x);
            x = 0;
        }
        return total;
    }

    static void copy(const_reals from, reals to) { std::copy(from.begin(), from.end(), to.begin()); }
    static void clear(reals to) { std::fill(to.begin(), to.end(), Real(0)); }
    static void add(const_reals from, reals to) {
        for (std::size_t i = 0; i < to.size(); ++i)
            to[i] += from[i];
    }

    static void linear(const_reals in, const_reals weights, const_reals bias, reals out) {
        language_model::linear<Real>(in, weights, bias, out, weights.size() / bias.size());
    }
    static void linear_input_gradient(const_reals gradient, const_reals weights, reals out, std::size_t columns) {
        language_model::linear_input_gradient<Real>(gradient, weights, out, columns);
    }
    static void linear_weight_gradient(const_reals in, const_reals gradient, reals weights, reals bias) {
        language_model::linear_weight_gradient<Real>(in, gradient, weights, bias);
    }

    static void layer_norm(const_reals in, const_reals scale, const_reals shift, reals normalized,
                           reals inverse_deviation, reals out) {
        language_model::layer_norm<Real>(in, scale, shift, normalized, inverse_deviation, out);
    }
    static void layer_norm_again(const_reals normalized, const_reals scale, const_reals shift, reals out) {
        language_model::layer_norm_again<Real>(normalized, scale, shift, out);
    }
    /// Adds the gradient at the input to `out`.
    static void layer_norm_input_gradient(const_reals gradient, const_reals scale, const_reals normalized,
                                          const_reals inverse_deviation, reals out) {
        language_model::layer_norm_input_gradient<Real>(gradient, scale, normalized, inverse_deviation, out);
    }
    static void layer_norm_weight_gradient(const_reals gradient, const_reals normalized, reals scale, reals shift) {
        language_model::layer_norm_weight_gradient<Real>(gradient, normalized, scale, shift);
    }

    /// For slices of sequences: with the keys and values of the slices before.
    static void attend(const shape& s, const_reals projected, reals weights, reals out,
                       std::span<const reals> before = {}) {
        attention<Real>{s}.forward(projected, weights, out, before);
    }
    /// Elements of scratch for `attend_back`.
    [[nodiscard]] static std::size_t attention_scratch(const shape& s) { return s.context(); }
    static void attend_back(const shape& s, const_reals gradient, const_reals projected, reals weights,
                            reals projected_gradient, reals scratch, std::span<const reals> before = {},
                            std::span<const reals> gradients_before = {}) {
        attention<Real>{s}.backward(gradient, projected, weights, projected_gradient, scratch, before,
                                    gradients_before);
    }

    static void activate(const_reals in, reals out) {
        for (std::size_t i = 0; i < out.size(); ++i)
            out[i] = gelu<Real>::value(in[i]);
    }
    /// Replaces the inputs by the gradients at the inputs.
    static void activate_back(const_reals gradient, reals in) {
        for (std::size_t i = 0; i < in.size(); ++i)
            in[i] = gradient[i] * gelu<Real>::slope(in[i]);
    }

    static void embed(const shape& s, bytes tokens, const_reals table, const_reals positions, reals out) {
        for (std::size_t i = 0; i < s.tokens(); ++i)
            for (std::size_t j = 0; j < s.hidden; ++j)
                out[i * s.hidden + j] = table[tokens[i] * s.hidden + j] + positions[i % s.sequence * s.hidden + j];
    }
    /// Elements of scratch for `embed_back`.
    [[nodiscard]] static std::size_t embedding_scratch(const shape&) { return 0; }
    static void embed_back(const shape& s, bytes tokens, const_reals gradient, reals table, reals positions, reals) {
        for (std::size_t i = 0; i < s.tokens(); ++i)
            for (std::size_t j = 0; j < s.hidden; ++j) {
                table[tokens[i] * s.hidden + j] += gradient[i * s.hidden + j];
                positions[i % s.sequence * s.hidden + j] += gradient[i * s.hidden + j];
            }
    }

    /// Replaces the logits by probabilities, and adds each token's loss in nats.
    static void cross_entropy(bytes targets, reals logits, reals losses) {
        const auto width = logits.size() / losses.size();
        for (std::size_t i = 0; i < losses.size(); ++i) {
            const auto row = logits.subspan(i * width, width);
            const Real largest = *std::max_element(row.begin(), row.end());
            Real sum = 0;
            for (Real& x : row)
                sum += x = std::exp(x - largest);
            for (Real& x : row)
                x /= sum;
            losses[i] -= std::log(row[targets[i]]);
        }
    }
    /// Replaces the probabilities by the gradients at the logits. `share` is the weight of a token's loss.
    static void cross_entropy_back(bytes targets, Real share, reals probabilities) {
        const auto width = probabilities.size() / targets.size();
        for (std::size_t i = 0; i < targets.size(); ++i)
            probabilities[i * width + targets[i]] -= 1;
        for (Real& x : probabilities)
            x *= share;
    }
};

} // namespace language_model
