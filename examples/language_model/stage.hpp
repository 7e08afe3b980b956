#pragma once

#include "block.hpp"
#include "host_math.hpp"
#include "layout.hpp"
#include "sequence_slices.hpp"
#include "shape.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <random>
#include <span>
#include <utility>
#include <vector>

namespace language_model {

/// One microbatch of text: for each token, the one that follows.
struct text_batch {
    std::span<const std::uint8_t> tokens;
    std::span<const std::uint8_t> targets;
    /// The number of the slice in its sequences.
    std::size_t slice = 0;
};

/// The place of a stage in the model: the first stage embeds the tokens, the last one has the head and the loss.
struct stage_place {
    std::size_t layers = 1;
    bool first = false;
    bool last = false;
};

/// The part of a stash that is recomputed. Norms are always recomputed: they stash normalized rows, and
/// `backward_weight` scales them again.
enum class recomputation : std::uint8_t {
    none,
    attention,    ///< selective: the stash of attention, from its projected input (Korthikanti et al. 2022)
    feed_forward, ///< selective: the activations of feed-forward layers, from their widened inputs
    full,         ///< everything except the head's stash, from the stage's input
};

/// One stage of a decoder-only transformer, with its parameters, their gradients, and a split backward. It works on
/// given buffers: a stash has two parts, `kept()` elements that the weight gradient also needs, and `freed()` elements
/// that are unused after the input gradient. `Math` (see `host_math`) does the computations, and all buffers are in its
/// memory. A stage is used by one thread.
template <class Real, class Math = host_math<Real>> class model_stage {
public:
    using reals = std::span<Real>;
    using const_reals = std::span<const Real>;
    using stash = scattered<Real>;
    using slices_type = sequence_slices<Real>;
    using storage = typename Math::storage;

    model_stage(const shape& s, const stage_place& place, std::uint64_t seed, Math math = {})
        : s_{s}, place_{place}, math_{std::move(math)} {
        if (place.first) {
            token_table_ = parameter_layout_.take(s.vocabulary * s.hidden);
            position_table_ = parameter_layout_.take(s.context() * s.hidden);
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
        parameters_ = math_.store(initial_parameters(seed));
        gradients_ = zeros(parameter_layout_.size());
        x_ = zeros(s.boundary());
        scratch_ = zeros(std::max(block<Math>::backward_scratch(s), place.first ? Math::embedding_scratch(s) : 0));
        if (place.last) losses_ = zeros(s.tokens());
    }

    [[nodiscard]] std::size_t kept() const { return kept_layout_.size(); }
    [[nodiscard]] std::size_t freed() const { return freed_layout_.size(); }
    /// Elements of the keys and values that a slice leaves for the slices after it; 0 if sequences aren't sliced.
    [[nodiscard]] std::size_t keys_values() const { return s_.slices > 1 ? blocks_.size() * s_.keys_values() : 0; }
    /// The pieces of the stash, each of which may be in another place.
    [[nodiscard]] const std::vector<piece>& kept_pieces() const { return kept_layout_.pieces(); }
    [[nodiscard]] const std::vector<piece>& freed_pieces() const { return freed_layout_.pieces(); }
    /// Elements of its input and of its output: tokens × hidden. The first stage has no input, the last no output.
    [[nodiscard]] std::size_t boundary() const { return s_.boundary(); }
    [[nodiscard]] reals parameters() { return of(parameters_); }
    [[nodiscard]] reals gradients() { return of(gradients_); }
    static reals of(storage& all) { return {all.data(), all.size()}; }
    /// Allocates a buffer that the stage can work on.
    [[nodiscard]] storage zeros(std::size_t size) { return math_.store(std::vector<Real>(size)); }

    /// New random values for `parameters()`.
    [[nodiscard]] std::vector<Real> initial_parameters(std::uint64_t seed) const {
        std::vector<Real> drawn(parameter_layout_.size());
        initialize(drawn, seed);
        return drawn;
    }

    void forward(const text_batch& text, const_reals input, const stash& kept, const stash& freed, reals output,
                 const slices_type& slices = {}) {
        run_blocks(text, input, kept, freed, slices);
        if (place_.last)
            lose(text, kept, freed);
        else
            math_.copy(x(), output);
    }

    /// `share` is the weight of a token's loss in the loss of the step. Stores in `kept` the data that
    /// `backward_weight` needs.
    void backward_input(const text_batch& text, Real share, const_reals output_gradient, const stash& kept,
                        const stash& freed, reals input_gradient, const slices_type& slices = {}) {
        if (place_.last)
            lose_back(text, share, kept, freed);
        else
            math_.copy(output_gradient, x());
        for (std::size_t i = blocks_.size(); i-- > 0;)
            blocks_[i].backward_input(math_, parameters(), kept, freed, x(), of(scratch_), slices.layer(s_, i));
        math_.copy(x(), place_.first ? embedding_gradient_.of(kept) : input_gradient);
    }

    /// Adds to the gradients of the parameters.
    void backward_weight(const text_batch& text, const stash& kept) {
        if (place_.first)
            math_.embed_back(s_, text.tokens, embedding_gradient_.of(kept), token_table_.of(gradients()),
                             positions_of(text, gradients()), of(scratch_));
        for (const auto& b : blocks_)
            b.backward_weight(math_, parameters(), kept, gradients(), narrow_scratch());
        if (!place_.last) return;
        math_.layer_norm_again(normalized_.of(kept), scale_.of(parameters()), shift_.of(parameters()),
                               narrow_scratch());
        math_.linear_weight_gradient(narrow_scratch(), logits_.of(kept), head_.of(gradients()),
                                     head_bias_.of(gradients()));
        math_.layer_norm_weight_gradient(norm_gradient_.of(kept), normalized_.of(kept), scale_.of(gradients()),
                                         shift_.of(gradients()));
    }

    /// The pieces of a stash that a recomputation restores, in `kept` and in `freed`.
    struct restored_pieces {
        std::vector<piece> kept;
        std::vector<piece> freed;
    };
    [[nodiscard]] restored_pieces restored_by(recomputation again) const {
        restored_pieces found;
        switch (again) {
        case recomputation::none: break;
        case recomputation::attention:
            for (const auto& b : blocks_) {
                found.kept.push_back(b.attended());
                found.freed.push_back(b.attention_weights());
            }
            break;
        case recomputation::feed_forward:
            for (const auto& b : blocks_)
                found.kept.push_back(b.activated());
            break;
        case recomputation::full:
            found.kept.push_back({0, place_.last ? normalized_.begin : kept()});
            found.freed.push_back({0, place_.last ? inverse_deviation_.begin : freed()});
            break;
        }
        return found;
    }
    /// Recomputes them. Only a full recomputation uses `input`, and not on the first stage.
    void recompute(recomputation again, const text_batch& text, const_reals input, const stash& kept,
                   const stash& freed) {
        switch (again) {
        case recomputation::none: return;
        case recomputation::attention:
            for (const auto& b : blocks_)
                b.attend_again(math_, kept, freed);
            return;
        case recomputation::feed_forward:
            for (const auto& b : blocks_)
                b.activate_again(math_, kept);
            return;
        case recomputation::full: return run_blocks(text, input, kept, freed, {});
        }
    }
    [[nodiscard]] bool is_first() const { return place_.first; }
    void copy(const_reals from, reals to) { math_.copy(from, to); }

    /// The sum of the losses of all tokens since the last call, in nats; 0 on all stages except the last.
    [[nodiscard]] double take_loss() { return math_.take_total(of(losses_)); }

private:
    [[nodiscard]] reals x() { return of(x_); }
    [[nodiscard]] reals narrow_scratch() { return of(scratch_).first(s_.boundary()); }

    /// `std::normal_distribution` differs between standard libraries; a sum of uniform numbers doesn't.
    void initialize(reals parameters, std::uint64_t seed) const {
        std::mt19937_64 bits{seed};
        const auto normal = [&] {
            double sum = -6.0;
            for (int i = 0; i < 12; ++i)
                sum += static_cast<double>(bits() >> 11U) * 0x1p-53;
            return sum;
        };
        for (const piece table : {token_table_, position_table_})
            for (Real& x : table.of(parameters))
                x = Real(0.1) * static_cast<Real>(normal());
        for (const auto& b : blocks_)
            b.initialize(parameters, normal);
        for (Real& x : scale_.of(parameters))
            x = 1;
        for (Real& x : head_.of(parameters))
            x = static_cast<Real>(normal()) / std::sqrt(static_cast<Real>(s_.hidden));
    }

    /// Runs all blocks, and leaves the output of the last one in `x`.
    void run_blocks(const text_batch& text, const_reals input, const stash& kept, const stash& freed,
                    const slices_type& slices) {
        if (place_.first)
            math_.embed(s_, text.tokens, token_table_.of(parameters()), positions_of(text, parameters()), x());
        else
            math_.copy(input, x());
        for (std::size_t i = 0; i < blocks_.size(); ++i)
            blocks_[i].forward(math_, parameters(), kept, freed, x(), narrow_scratch(), slices.layer(s_, i));
    }
    /// The rows of the table of positions, or of its gradients, for the tokens of a slice.
    [[nodiscard]] reals positions_of(const text_batch& text, reals from) const {
        return position_table_.of(from).subspan(text.slice * s_.sequence * s_.hidden, s_.sequence * s_.hidden);
    }

    void lose(const text_batch& text, const stash& kept, const stash& freed) {
        math_.layer_norm(x(), scale_.of(parameters()), shift_.of(parameters()), normalized_.of(kept),
                         inverse_deviation_.of(freed), narrow_scratch());
        math_.linear(narrow_scratch(), head_.of(parameters()), head_bias_.of(parameters()), logits_.of(kept));
        math_.cross_entropy(text.targets, logits_.of(kept), of(losses_));
    }
    void lose_back(const text_batch& text, Real share, const stash& kept, const stash& freed) {
        math_.cross_entropy_back(text.targets, share, logits_.of(kept));
        math_.linear_input_gradient(logits_.of(kept), head_.of(parameters()), norm_gradient_.of(kept), s_.vocabulary);
        math_.clear(x());
        math_.layer_norm_input_gradient(norm_gradient_.of(kept), scale_.of(parameters()), normalized_.of(kept),
                                        inverse_deviation_.of(freed), x());
    }

    shape s_;
    stage_place place_;
    layout parameter_layout_, kept_layout_, freed_layout_;
    piece token_table_{}, position_table_{}, embedding_gradient_{};
    std::vector<block<Math>> blocks_;
    piece scale_{}, shift_{}, head_{}, head_bias_{}, normalized_{}, norm_gradient_{}, logits_{}, inverse_deviation_{};
    Math math_;
    storage parameters_{}, gradients_{};
    storage x_{}, scratch_{}, losses_{};
};

} // namespace language_model
