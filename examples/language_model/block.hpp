#pragma once

#include "layout.hpp"
#include "sequence_slices.hpp"
#include "shape.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <span>

namespace language_model {

/// One layer: y = x + attention(norm(x)), then y + feed-forward(norm(y)).
///
/// Its backward is split. `backward_input` needs the whole stash. It stores in the kept part all data that
/// `backward_weight` needs: the inputs of the linear layers, and the gradients at their outputs.
template <class Math> class block {
public:
    using Real = typename Math::real;
    using reals = std::span<Real>;
    using const_reals = std::span<const Real>;
    using stash = scattered<Real>;
    using slices_type = sequence_slices<Real>;

    /// Allocates its parameters, and its share of the kept and of the freed part of the stash.
    block(const shape& s, layout& parameters, layout& kept, layout& freed)
        : s_{s}, norm1_{norm(parameters, kept, freed)}, norm2_{norm(parameters, kept, freed)},
          project_{weights(parameters, s.hidden, 3 * s.hidden)}, output_{weights(parameters, s.hidden, s.hidden)},
          widen_{weights(parameters, s.hidden, s.feed_forward())}, narrow_{weights(parameters, s.feed_forward(),
                                                                                   s.hidden)},
          attended_{kept.take(s.boundary())}, activated_{kept.take(s.tokens() * s.feed_forward())},
          middle_gradient_{kept.take(s.boundary())}, end_gradient_{kept.take(s.boundary())},
          projected_{freed.take(3 * s.boundary())}, projected_gradient_{kept.take(3 * s.boundary())},
          widened_{kept.take(s.tokens() * s.feed_forward())}, weights_{freed.take(s.attention_weights())} {}

    /// Initializes the weights from `random()`, which is standard normal, scaled to the number of their inputs.
    template <class Random> void initialize(reals parameters, Random& random) const {
        for (const auto& n : {norm1_, norm2_})
            for (Real& x : n.scale.of(parameters))
                x = 1;
        for (const auto& w : {project_, output_, widen_, narrow_})
            for (Real& x : w.matrix.of(parameters))
                x = static_cast<Real>(random()) / std::sqrt(static_cast<Real>(w.inputs));
    }

    /// Replaces `x` by the output; `scratch` holds tokens × hidden elements.
    void forward(Math& math, const_reals parameters, const stash& kept, const stash& freed, reals x, reals scratch,
                 const slices_type& slices) const {
        normalize(math, norm1_, parameters, kept, freed, x, scratch);
        apply(math, project_, parameters, scratch, projected_.of(freed));
        attend(math, s_, projected_.of(freed), weights_.of(freed), attended_.of(kept), slices);
        apply(math, output_, parameters, attended_.of(kept), scratch);
        math.add(scratch, x);
        normalize(math, norm2_, parameters, kept, freed, x, scratch);
        apply(math, widen_, parameters, scratch, widened_.of(kept));
        math.activate(widened_.of(kept), activated_.of(kept));
        apply(math, narrow_, parameters, activated_.of(kept), scratch);
        math.add(scratch, x);
    }

    /// Recomputes the stash of attention from its projected input.
    void attend_again(Math& math, const stash& kept, const stash& freed) const {
        math.attend(s_, projected_.of(freed), weights_.of(freed), attended_.of(kept));
    }
    [[nodiscard]] piece attended() const { return attended_; }
    [[nodiscard]] piece attention_weights() const { return weights_; }
    /// Recomputes the activations of the feed-forward layer from its widened input.
    void activate_again(Math& math, const stash& kept) const { math.activate(widened_.of(kept), activated_.of(kept)); }
    [[nodiscard]] piece activated() const { return activated_; }

    /// Replaces `gradient` at the output by the gradient at the input; `scratch` holds `backward_scratch` elements.
    void backward_input(Math& math, const_reals parameters, const stash& kept, const stash& freed, reals gradient,
                        reals scratch, const slices_type& slices) const {
        math.copy(gradient, end_gradient_.of(kept));
        const auto wide = scratch.first(widened_.size);
        apply_back(math, narrow_, parameters, gradient, wide);
        math.activate_back(wide, widened_.of(kept)); // holds the gradient from here on
        apply_back(math, widen_, parameters, widened_.of(kept), norm2_.gradient.of(kept));
        normalize_back(math, norm2_, parameters, kept, freed, gradient);

        math.copy(gradient, middle_gradient_.of(kept));
        const auto narrow = scratch.first(s_.boundary());
        apply_back(math, output_, parameters, gradient, narrow);
        attend_back(math, s_, narrow, projected_.of(freed), weights_.of(freed), projected_gradient_.of(kept),
                    scratch.subspan(s_.boundary()), slices);
        apply_back(math, project_, parameters, projected_gradient_.of(kept), norm1_.gradient.of(kept));
        normalize_back(math, norm1_, parameters, kept, freed, gradient);
    }
    [[nodiscard]] static std::size_t backward_scratch(const shape& s) {
        return std::max(s.tokens() * s.feed_forward(), s.boundary() + Math::attention_scratch(s));
    }

    /// Adds to `gradients`, which has one entry per parameter; `scratch` holds tokens × hidden elements.
    void backward_weight(Math& math, const_reals parameters, const stash& kept, reals gradients, reals scratch) const {
        normalized_weights(math, norm1_, project_, parameters, kept, projected_gradient_.of(kept), gradients, scratch);
        add_weights(math, output_, attended_.of(kept), middle_gradient_.of(kept), gradients);
        normalized_weights(math, norm2_, widen_, parameters, kept, widened_.of(kept), gradients, scratch);
        add_weights(math, narrow_, activated_.of(kept), end_gradient_.of(kept), gradients);
    }

private:
    struct norm_pieces {
        piece scale, shift, normalized, gradient, inverse_deviation;
    };
    struct weight_pieces {
        piece matrix, bias;
        std::size_t inputs;
    };

    norm_pieces norm(layout& parameters, layout& kept, layout& freed) const {
        return {parameters.take(s_.hidden), parameters.take(s_.hidden), kept.take(s_.boundary()),
                kept.take(s_.boundary()), freed.take(s_.tokens())};
    }
    static weight_pieces weights(layout& parameters, std::size_t inputs, std::size_t outputs) {
        return {parameters.take(inputs * outputs), parameters.take(outputs), inputs};
    }

    static void normalize(Math& math, const norm_pieces& n, const_reals parameters, const stash& kept,
                          const stash& freed, const_reals x, reals out) {
        math.layer_norm(x, n.scale.of(parameters), n.shift.of(parameters), n.normalized.of(kept),
                        n.inverse_deviation.of(freed), out);
    }
    static void normalize_back(Math& math, const norm_pieces& n, const_reals parameters, const stash& kept,
                               const stash& freed, reals gradient) {
        math.layer_norm_input_gradient(n.gradient.of(kept), n.scale.of(parameters), n.normalized.of(kept),
                                       n.inverse_deviation.of(freed), gradient);
    }
    static void apply(Math& math, const weight_pieces& w, const_reals parameters, const_reals in, reals out) {
        math.linear(in, w.matrix.of(parameters), w.bias.of(parameters), out);
    }
    static void apply_back(Math& math, const weight_pieces& w, const_reals parameters, const_reals gradient,
                           reals out) {
        math.linear_input_gradient(gradient, w.matrix.of(parameters), out, w.bias.size);
    }
    static void add_weights(Math& math, const weight_pieces& w, const_reals in, const_reals gradient, reals gradients) {
        math.linear_weight_gradient(in, gradient, w.matrix.of(gradients), w.bias.of(gradients));
    }
    /// Gradients of the parameters of a norm and of the linear layer after it.
    static void normalized_weights(Math& math, const norm_pieces& n, const weight_pieces& w, const_reals parameters,
                                   const stash& kept, const_reals gradient, reals gradients, reals scratch) {
        math.layer_norm_again(n.normalized.of(kept), n.scale.of(parameters), n.shift.of(parameters), scratch);
        add_weights(math, w, scratch, gradient, gradients);
        math.layer_norm_weight_gradient(n.gradient.of(kept), n.normalized.of(kept), n.scale.of(gradients),
                                        n.shift.of(gradients));
    }

    shape s_;
    norm_pieces norm1_, norm2_;
    weight_pieces project_, output_, widen_, narrow_;
    piece attended_, activated_, middle_gradient_, end_gradient_, projected_, projected_gradient_, widened_, weights_;
};

} // namespace language_model
