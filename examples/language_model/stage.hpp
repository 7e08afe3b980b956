#pragma once

#include "block.hpp"
#include "layer_norm.hpp"
#include "layout.hpp"
#include "matrix.hpp"
#include "shape.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <random>
#include <span>
#include <vector>

namespace language_model {

/// One microbatch of text: for each token, the one that follows.
struct text_batch {
    std::span<const std::uint8_t> tokens;
    std::span<const std::uint8_t> targets;
};

/// Where a stage stands: the first embeds the tokens, the last has the head and the loss.
struct stage_place {
    std::size_t layers = 1;
    bool first = false;
    bool last = false;
};

/// One stage of a decoder-only transformer, with its parameters, their gradients and a backward in two halves. It works
/// on buffers that it is given: a stash in two parts, `kept()` elements that the weight gradient needs too, and
/// `freed()` that are done with after the input gradient. A stage serves one thread.
template <class Real> class model_stage {
public:
    using reals = std::span<Real>;
    using const_reals = std::span<const Real>;

    model_stage(const shape& s, const stage_place& place, std::uint64_t seed) : s_{s}, place_{place} {
        if (place.first) {
            token_table_ = parameter_layout_.take(s.vocabulary * s.hidden);
            position_table_ = parameter_layout_.take(s.sequence * s.hidden);
            embedding_gradient_ = kept_layout_.take(s.boundary());
        }
        for (std::size_t i = 0; i < place.layers; ++i)
            blocks_.emplace_back(s, parameter_layout_, kept_layout_, freed_layout_);
        if (place.last) {
            scale_ = parameter_layout_.take(s.hidden);
            shift_ = parameter_layout_.take(s.hidden);
            head_ = parameter_layout_.take(s.hidden * s.vocabulary);
            head_bias_ = parameter_layout_.take(s.vocabulary);
            normalized_ = kept_layout_.take(s.boundary());
            norm_gradient_ = kept_layout_.take(s.boundary());
            logits_ = kept_layout_.take(s.tokens() * s.vocabulary);
            inverse_deviation_ = freed_layout_.take(s.tokens());
        }
        parameters_.resize(parameter_layout_.size());
        gradients_.resize(parameters_.size());
        x_.resize(s.boundary());
        scratch_.resize(std::max(s.tokens() * s.feed_forward(), s.boundary() + s.sequence));
        initialize(seed);
    }

    [[nodiscard]] std::size_t kept() const { return kept_layout_.size(); }
    [[nodiscard]] std::size_t freed() const { return freed_layout_.size(); }
    /// Elements of what it takes and gives: tokens × hidden. The first takes none, the last gives none.
    [[nodiscard]] std::size_t boundary() const { return s_.boundary(); }
    [[nodiscard]] reals parameters() { return parameters_; }
    [[nodiscard]] reals gradients() { return gradients_; }

    /// Returns the sum of the losses of all tokens in nats, 0 but for the last stage.
    Real forward(const text_batch& text, const_reals input, reals kept, reals freed, reals output) {
        if (place_.first)
            embed(text);
        else
            std::copy(input.begin(), input.end(), x_.begin());
        for (const auto& b : blocks_)
            b.forward(parameters_, kept, freed, x_, narrow_scratch());
        if (place_.last) return loss(text, kept, freed);
        std::copy(x_.begin(), x_.end(), output.begin());
        return 0;
    }

    /// `share`: what a token's loss counts for in the loss of the step. Leaves in `kept` what `backward_weight` needs.
    void backward_input(const text_batch& text, Real share, const_reals output_gradient, reals kept, reals freed,
                        reals input_gradient) {
        if (place_.last)
            loss_gradient(text, share, kept, freed);
        else
            std::copy(output_gradient.begin(), output_gradient.end(), x_.begin());
        for (std::size_t i = blocks_.size(); i-- > 0;)
            blocks_[i].backward_input(parameters_, kept, freed, x_, scratch_);
        std::copy(x_.begin(), x_.end(), (place_.first ? embedding_gradient_.of(kept) : input_gradient).begin());
    }

    /// Adds to the gradients of the parameters.
    void backward_weight(const text_batch& text, const_reals kept) {
        if (place_.first) add_embedding_gradient(text, embedding_gradient_.of(kept));
        for (const auto& b : blocks_)
            b.backward_weight(parameters_, kept, gradients_, narrow_scratch());
        if (!place_.last) return;
        layer_norm_again<Real>(normalized_.of(kept), scale_.of(const_reals{parameters_}),
                               shift_.of(const_reals{parameters_}), narrow_scratch());
        linear_weight_gradient<Real>(narrow_scratch(), logits_.of(kept), head_.of(gradients()),
                                     head_bias_.of(gradients()));
        layer_norm_weight_gradient<Real>(norm_gradient_.of(kept), normalized_.of(kept), scale_.of(gradients()),
                                         shift_.of(gradients()));
    }

private:
    [[nodiscard]] reals narrow_scratch() { return reals{scratch_}.first(s_.boundary()); }

    /// `std::normal_distribution` differs between standard libraries; a sum of uniform numbers doesn't.
    void initialize(std::uint64_t seed) {
        std::mt19937_64 bits{seed};
        const auto normal = [&] {
            double sum = -6.0;
            for (int i = 0; i < 12; ++i)
                sum += static_cast<double>(bits() >> 11U) * 0x1p-53;
            return sum;
        };
        for (const piece table : {token_table_, position_table_})
            for (Real& x : table.of(parameters()))
                x = Real(0.1) * static_cast<Real>(normal());
        for (const auto& b : blocks_)
            b.initialize(parameters(), normal);
        for (Real& x : scale_.of(parameters()))
            x = 1;
        for (Real& x : head_.of(parameters()))
            x = static_cast<Real>(normal()) / std::sqrt(static_cast<Real>(s_.hidden));
    }

    void embed(const text_batch& text) {
        const auto table = token_table_.of(parameters());
        const auto positions = position_table_.of(parameters());
        for (std::size_t i = 0; i < s_.tokens(); ++i)
            for (std::size_t j = 0; j < s_.hidden; ++j)
                x_[i * s_.hidden + j] =
                    table[text.tokens[i] * s_.hidden + j] + positions[i % s_.sequence * s_.hidden + j];
    }
    void add_embedding_gradient(const text_batch& text, const_reals gradient) {
        const auto table = token_table_.of(gradients());
        const auto positions = position_table_.of(gradients());
        for (std::size_t i = 0; i < s_.tokens(); ++i)
            for (std::size_t j = 0; j < s_.hidden; ++j) {
                table[text.tokens[i] * s_.hidden + j] += gradient[i * s_.hidden + j];
                positions[i % s_.sequence * s_.hidden + j] += gradient[i * s_.hidden + j];
            }
    }

    /// Leaves the probabilities where the logits were.
    Real loss(const text_batch& text, reals kept, reals freed) {
        layer_norm<Real>(x_, scale_.of(parameters()), shift_.of(parameters()), normalized_.of(kept),
                         inverse_deviation_.of(freed), narrow_scratch());
        const auto logits = logits_.of(kept);
        linear<Real>(narrow_scratch(), head_.of(parameters()), head_bias_.of(parameters()), logits, s_.hidden);
        Real total = 0;
        for (std::size_t i = 0; i < s_.tokens(); ++i) {
            const auto row = logits.subspan(i * s_.vocabulary, s_.vocabulary);
            const Real largest = *std::max_element(row.begin(), row.end());
            Real sum = 0;
            for (Real& x : row)
                sum += x = std::exp(x - largest);
            for (Real& x : row)
                x /= sum;
            total -= std::log(row[text.targets[i]]);
        }
        return total;
    }
    void loss_gradient(const text_batch& text, Real share, reals kept, reals freed) {
        const auto gradient = logits_.of(kept);
        for (std::size_t i = 0; i < s_.tokens(); ++i)
            gradient[i * s_.vocabulary + text.targets[i]] -= 1;
        for (Real& x : gradient)
            x *= share;
        linear_input_gradient<Real>(gradient, head_.of(parameters()), norm_gradient_.of(kept), s_.vocabulary);
        std::fill(x_.begin(), x_.end(), Real(0));
        layer_norm_input_gradient<Real>(norm_gradient_.of(kept), scale_.of(parameters()), normalized_.of(kept),
                                        inverse_deviation_.of(freed), x_);
    }

    shape s_;
    stage_place place_;
    layout parameter_layout_, kept_layout_, freed_layout_;
    piece token_table_{}, position_table_{}, embedding_gradient_{};
    std::vector<block<Real>> blocks_;
    piece scale_{}, shift_{}, head_{}, head_bias_{}, normalized_{}, norm_gradient_{}, logits_{}, inverse_deviation_{};
    std::vector<Real> parameters_, gradients_;
    std::vector<Real> x_, scratch_;
};

} // namespace language_model
