#pragma once

#include "../shape.hpp"
#include "kernels.hpp"
#include "product.hpp"

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace language_model {

/// The mathematics of a stage (`host_math`) in float on a device, by kernels and matrix products. Only `store` and
/// `take_total` wait for the device, and no result depends on the order in which threads run.
///
/// A device has
///  - `array<T>`: owned device memory, with `data()` and `size()`. `store(vector)` returns one, `load<T>(span)` returns
///    a vector. Both, and `overwrite<T>(span, span on the host)`, start after all earlier work of the device, and
///    return when they have ended. `load_in_order<T>(span)` waits only for work in the same stream;
///  - `for_each(count, body)`: body(i); `for_each_row(rows, body)`: body(row, team), see kernels.hpp;
///  - `add_column_sums(rows, columns, term, out)`: out[j] += Σ term(i, j) over all rows i;
///  - `multiply(product)`; `copy(from, to, count)`; `clear(to, count)`.
template <class Device> class device_math {
public:
    using real = float;
    using reals = std::span<float>;
    using const_reals = std::span<const float>;
    using bytes = std::span<const std::uint8_t>;
    using storage = typename Device::template array<float>;

    /// Borrows the device.
    explicit device_math(Device& on) : on_{&on} {}

    [[nodiscard]] storage store(const std::vector<float>& values) { return on_->store(values); }
    [[nodiscard]] double take_total(reals values) {
        double total = 0.0;
        for (const float x : on_->template load<float>(values))
            total += static_cast<double>(x);
        const std::vector<float> zeros(values.size());
        on_->template overwrite<float>(values, zeros);
        return total;
    }

    void copy(const_reals from, reals to) { on_->copy(from.data(), to.data(), to.size()); }
    void clear(reals to) { on_->clear(to.data(), to.size()); }
    void add(const_reals from, reals to) { on_->for_each(to.size(), kernels::add{from.data(), to.data()}); }

    void linear(const_reals in, const_reals weights, const_reals bias, reals out) {
        const auto columns = bias.size();
        const auto inner = weights.size() / columns;
        on_->for_each(out.size(), kernels::repeat_row{bias.data(), columns, out.data()});
        on_->multiply({.rows = columns,
                       .columns = in.size() / inner,
                       .inner = inner,
                       .a = weights.data(),
                       .a_leading = columns,
                       .b = in.data(),
                       .b_leading = inner,
                       .beta = 1.0F,
                       .c = out.data(),
                       .c_leading = columns});
    }
    void linear_input_gradient(const_reals gradient, const_reals weights, reals out, std::size_t columns) {
        const auto inner = weights.size() / columns;
        on_->multiply({.transpose_a = true,
                       .rows = inner,
                       .columns = gradient.size() / columns,
                       .inner = columns,
                       .a = weights.data(),
                       .a_leading = columns,
                       .b = gradient.data(),
                       .b_leading = columns,
                       .c = out.data(),
                       .c_leading = inner});
    }
    void linear_weight_gradient(const_reals in, const_reals gradient, reals weights, reals bias) {
        const auto columns = bias.size();
        add_outer_products(in, gradient, weights, columns);
        on_->add_column_sums(gradient.size() / columns, columns, kernels::element{gradient.data(), columns},
                             bias.data());
    }

    void layer_norm(const_reals in, const_reals scale, const_reals shift, reals normalized, reals inverse_deviation,
                    reals out) {
        on_->for_each_row(inverse_deviation.size(),
                          kernels::layer_norm{in.data(), scale.data(), shift.data(), scale.size(), normalized.data(),
                                              inverse_deviation.data(), out.data()});
    }
    void layer_norm_again(const_reals normalized, const_reals scale, const_reals shift, reals out) {
        on_->for_each(normalized.size(), kernels::scale_and_shift{normalized.data(), scale.data(), shift.data(),
                                                                  scale.size(), out.data()});
    }
    void layer_norm_input_gradient(const_reals gradient, const_reals scale, const_reals normalized,
                                   const_reals inverse_deviation, reals out) {
        on_->for_each_row(inverse_deviation.size(),
                          kernels::layer_norm_back{gradient.data(), scale.data(), normalized.data(),
                                                   inverse_deviation.data(), scale.size(), out.data()});
    }
    void layer_norm_weight_gradient(const_reals gradient, const_reals normalized, reals scale, reals shift) {
        const auto width = scale.size();
        const auto rows = gradient.size() / width;
        on_->add_column_sums(rows, width, kernels::product_of_elements{gradient.data(), normalized.data(), width},
                             scale.data());
        on_->add_column_sums(rows, width, kernels::element{gradient.data(), width}, shift.data());
    }

    void attend(const shape& s, const_reals projected, reals weights, reals out) {
        for (std::size_t i = 0; i < s.sequences; ++i)
            on_->multiply(scores(s, queries(s, projected, i), keys(s, projected, i), &weights[i * of_sequence(s)]));
        on_->for_each_row(weights.size() / s.sequence, kernels::causal_softmax{s.sequence, weights.data()});
        for (std::size_t i = 0; i < s.sequences; ++i)
            on_->multiply(mixed(s, values(s, projected, i), 3 * s.hidden, &weights[i * of_sequence(s)], false,
                                &out[i * s.sequence * s.hidden], s.hidden));
    }
    /// Elements of scratch for `attend_back`: the gradients at the weights of one sequence.
    [[nodiscard]] static std::size_t attention_scratch(const shape& s) { return of_sequence(s); }
    void attend_back(const shape& s, const_reals gradient, const_reals projected, const_reals weights,
                     reals projected_gradient, reals scratch) {
        const auto wide = 3 * s.hidden;
        for (std::size_t i = 0; i < s.sequences; ++i) {
            const float* const above = &gradient[i * s.sequence * s.hidden];
            const float* const shares = &weights[i * of_sequence(s)];
            float* const slopes = scratch.data();
            on_->multiply(mixed(s, above, s.hidden, shares, true, values(s, projected_gradient, i), wide));
            on_->multiply(shares_gradient(s, above, values(s, projected, i), slopes));
            on_->for_each_row(s.heads * s.sequence, kernels::softmax_back{shares, s.sequence, scale(s), slopes});
            on_->multiply(
                mixed(s, keys(s, projected, i), wide, slopes, false, queries(s, projected_gradient, i), wide));
            on_->multiply(mixed(s, queries(s, projected, i), wide, slopes, true, keys(s, projected_gradient, i), wide));
        }
    }

    void activate(const_reals in, reals out) { on_->for_each(out.size(), kernels::activate{in.data(), out.data()}); }
    void activate_back(const_reals gradient, reals in) {
        on_->for_each(in.size(), kernels::activate_back{gradient.data(), in.data()});
    }

    void embed(const shape& s, bytes tokens, const_reals table, const_reals positions, reals out) {
        on_->for_each(out.size(),
                      kernels::embed{tokens.data(), table.data(), positions.data(), s.sequence, s.hidden, out.data()});
    }
    /// Elements of scratch for `embed_back`: a row for each token, so that the gradient of the table is a matrix
    /// product.
    [[nodiscard]] static std::size_t embedding_scratch(const shape& s) { return s.tokens() * s.vocabulary; }
    void embed_back(const shape& s, bytes tokens, const_reals gradient, reals table, reals positions, reals scratch) {
        const auto rows = scratch.first(embedding_scratch(s));
        on_->for_each(rows.size(), kernels::one_hot{tokens.data(), s.vocabulary, rows.data()});
        add_outer_products(rows, gradient, table, s.hidden);
        on_->for_each(positions.size(),
                      kernels::add_sequences{gradient.data(), s.sequences, s.sequence * s.hidden, positions.data()});
    }

    void cross_entropy(bytes targets, reals logits, reals losses) {
        const auto width = logits.size() / losses.size();
        on_->for_each_row(losses.size(), kernels::cross_entropy{targets.data(), width, logits.data(), losses.data()});
    }
    void cross_entropy_back(bytes targets, float share, reals probabilities) {
        const auto width = probabilities.size() / targets.size();
        on_->for_each(probabilities.size(),
                      kernels::cross_entropy_back{targets.data(), share, width, probabilities.data()});
    }

private:
    /// to[inner × columns] += inᵀ · gradient
    void add_outer_products(const_reals in, const_reals gradient, reals to, std::size_t columns) {
        const auto inner = to.size() / columns;
        on_->multiply({.transpose_b = true,
                       .rows = columns,
                       .columns = inner,
                       .inner = gradient.size() / columns,
                       .a = gradient.data(),
                       .a_leading = columns,
                       .b = in.data(),
                       .b_leading = inner,
                       .beta = 1.0F,
                       .c = to.data(),
                       .c_leading = columns});
    }

    // Attention: one sequence at a time, all heads at once. The queries, keys and values of a head are columns of
    // `projected`.

    [[nodiscard]] static std::size_t of_sequence(const shape& s) { return s.heads * s.sequence * s.sequence; }
    [[nodiscard]] static float scale(const shape& s) { return 1.0F / std::sqrt(static_cast<float>(s.head_size())); }
    template <class Real> static Real* queries(const shape& s, std::span<Real> projected, std::size_t sequence) {
        return projected.data() + sequence * s.sequence * 3 * s.hidden;
    }
    template <class Real> static Real* keys(const shape& s, std::span<Real> projected, std::size_t sequence) {
        return queries(s, projected, sequence) + s.hidden;
    }
    template <class Real> static Real* values(const shape& s, std::span<Real> projected, std::size_t sequence) {
        return queries(s, projected, sequence) + 2 * s.hidden;
    }

    /// out[t][u] = scale · queries[t] · keys[u]
    static product scores(const shape& s, const float* of, const float* with, float* out) {
        auto p = dot_products(s, of, 3 * s.hidden, with, out);
        p.alpha = scale(s);
        return p;
    }
    /// out[t][u] = gradient[t] · values[u]
    static product shares_gradient(const shape& s, const float* gradient, const float* of, float* out) {
        return dot_products(s, gradient, s.hidden, of, out);
    }
    static product dot_products(const shape& s, const float* rows, std::size_t row_width, const float* columns,
                                float* out) {
        return {.transpose_a = true,
                .rows = s.sequence,
                .columns = s.sequence,
                .inner = s.head_size(),
                .a = columns,
                .a_leading = 3 * s.hidden,
                .a_stride = s.head_size(),
                .b = rows,
                .b_leading = row_width,
                .b_stride = s.head_size(),
                .c = out,
                .c_leading = s.sequence,
                .c_stride = s.sequence * s.sequence,
                .count = s.heads};
    }
    /// out[t] = Σ shares[t][u] · rows[u]; with shares[u][t] if transposed.
    static product mixed(const shape& s, const float* rows, std::size_t row_width, const float* shares, bool transposed,
                         float* out, std::size_t out_width) {
        return {.transpose_b = transposed,
                .rows = s.head_size(),
                .columns = s.sequence,
                .inner = s.sequence,
                .a = rows,
                .a_leading = row_width,
                .a_stride = s.head_size(),
                .b = shares,
                .b_leading = s.sequence,
                .b_stride = s.sequence * s.sequence,
                .c = out,
                .c_leading = out_width,
                .c_stride = s.head_size(),
                .count = s.heads};
    }

    Device* on_;
};

} // namespace language_model
