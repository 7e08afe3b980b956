#pragma once

#include "attention.hpp"
#include "layer_norm.hpp"
#include "layout.hpp"
#include "matrix.hpp"
#include "shape.hpp"

#include <cmath>
#include <cstddef>
#include <span>

namespace language_model {

/// One layer: y = x + attention(norm(x)), then y + feed-forward(norm(y)).
///
/// Its backward is split. `backward_input` needs the whole stash; it leaves in the part that it keeps what
/// `backward_weight` needs: the inputs of the linear layers and the gradients at their outputs.
template <class Real> class block {
public:
    using reals = std::span<Real>;
    using const_reals = std::span<const Real>;

    /// Takes its parameters, and its share of the kept and of the freed part of the stash.
    block(const shape& s, layout& parameters, layout& kept, layout& freed)
        : s_{s}, attention_{s}, norm1_{norm(parameters, kept, freed)}, norm2_{norm(parameters, kept, freed)},
          project_{weights(parameters, s.hidden, 3 * s.hidden)}, output_{weights(parameters, s.hidden, s.hidden)},
          widen_{weights(parameters, s.hidden, s.feed_forward())}, narrow_{weights(parameters, s.feed_forward(),
                                                                                   s.hidden)},
          attended_{kept.take(s.boundary())}, activated_{kept.take(s.tokens() * s.feed_forward())},
          middle_gradient_{kept.take(s.boundary())}, end_gradient_{kept.take(s.boundary())},
          projected_{freed.take(3 * s.boundary())}, projected_gradient_{kept.take(3 * s.boundary())},
          widened_{kept.take(s.tokens() * s.feed_forward())}, weights_{freed.take(attention_.weights())} {}

    /// The weights start from `random()`, standard normal, scaled to their inputs.
    template <class Random> void initialize(reals parameters, Random& random) const {
        for (const auto& n : {norm1_, norm2_})
            for (Real& x : n.scale.of(parameters))
                x = 1;
        for (const auto& w : {project_, output_, widen_, narrow_})
            for (Real& x : w.matrix.of(parameters))
                x = static_cast<Real>(random()) / std::sqrt(static_cast<Real>(w.inputs));
    }

    /// `x` becomes the output; `scratch` holds tokens × hidden.
    void forward(const_reals parameters, reals kept, reals freed, reals x, reals scratch) const {
        normalize(norm1_, parameters, kept, freed, x, scratch);
        apply(project_, parameters, scratch, projected_.of(freed));
        attention_.forward(projected_.of(freed), weights_.of(freed), attended_.of(kept));
        apply(output_, parameters, attended_.of(kept), scratch);
        add(scratch, x);
        normalize(norm2_, parameters, kept, freed, x, scratch);
        const auto widened = widened_.of(kept);
        const auto activated = activated_.of(kept);
        apply(widen_, parameters, scratch, widened);
        for (std::size_t i = 0; i < widened.size(); ++i)
            activated[i] = gelu(widened[i]);
        apply(narrow_, parameters, activated, scratch);
        add(scratch, x);
    }

    /// `gradient` at the output becomes the one at the input; `scratch` holds tokens × 4 hidden.
    void backward_input(const_reals parameters, reals kept, reals freed, reals gradient, reals scratch) const {
        copy(gradient, end_gradient_.of(kept));
        const auto wide = scratch.first(widened_.size);
        apply_back(narrow_, parameters, gradient, wide);
        const auto widened = widened_.of(kept); // and from here on the gradient there
        for (std::size_t i = 0; i < widened.size(); ++i)
            widened[i] = wide[i] * gelu_slope(widened[i]);
        apply_back(widen_, parameters, widened, norm2_.gradient.of(kept));
        normalize_back(norm2_, parameters, kept, freed, gradient);

        copy(gradient, middle_gradient_.of(kept));
        const auto narrow = scratch.first(s_.boundary());
        apply_back(output_, parameters, gradient, narrow);
        attention_.backward(narrow, projected_.of(freed), weights_.of(freed), projected_gradient_.of(kept),
                            scratch.subspan(s_.boundary(), s_.sequence));
        apply_back(project_, parameters, projected_gradient_.of(kept), norm1_.gradient.of(kept));
        normalize_back(norm1_, parameters, kept, freed, gradient);
    }

    /// Adds to `gradients`, one per parameter; `scratch` holds tokens × hidden.
    void backward_weight(const_reals parameters, const_reals kept, reals gradients, reals scratch) const {
        normalized_weights(norm1_, project_, parameters, kept, projected_gradient_.of(kept), gradients, scratch);
        add_weights(output_, attended_.of(kept), middle_gradient_.of(kept), gradients);
        normalized_weights(norm2_, widen_, parameters, kept, widened_.of(kept), gradients, scratch);
        add_weights(narrow_, activated_.of(kept), end_gradient_.of(kept), gradients);
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

    void normalize(const norm_pieces& n, const_reals parameters, reals kept, reals freed, const_reals x,
                   reals out) const {
        layer_norm<Real>(x, n.scale.of(parameters), n.shift.of(parameters), n.normalized.of(kept),
                         n.inverse_deviation.of(freed), out);
    }
    void normalize_back(const norm_pieces& n, const_reals parameters, reals kept, reals freed, reals gradient) const {
        layer_norm_input_gradient<Real>(n.gradient.of(kept), n.scale.of(parameters), n.normalized.of(kept),
                                        n.inverse_deviation.of(freed), gradient);
    }
    static void apply(const weight_pieces& w, const_reals parameters, const_reals in, reals out) {
        linear<Real>(in, w.matrix.of(parameters), w.bias.of(parameters), out, w.inputs);
    }
    static void apply_back(const weight_pieces& w, const_reals parameters, const_reals gradient, reals out) {
        linear_input_gradient<Real>(gradient, w.matrix.of(parameters), out, w.bias.size);
    }
    static void add_weights(const weight_pieces& w, const_reals in, const_reals gradient, reals gradients) {
        linear_weight_gradient<Real>(in, gradient, w.matrix.of(gradients), w.bias.of(gradients));
    }
    /// Of a norm and the linear layer that it feeds.
    static void normalized_weights(const norm_pieces& n, const weight_pieces& w, const_reals parameters,
                                   const_reals kept, const_reals gradient, reals gradients, reals scratch) {
        layer_norm_again<Real>(n.normalized.of(kept), n.scale.of(parameters), n.shift.of(parameters), scratch);
        add_weights(w, scratch, gradient, gradients);
        layer_norm_weight_gradient<Real>(n.gradient.of(kept), n.normalized.of(kept), n.scale.of(gradients),
                                         n.shift.of(gradients));
    }

    static void copy(const_reals from, reals to) { std::copy(from.begin(), from.end(), to.begin()); }
    static void add(const_reals from, reals to) {
        for (std::size_t i = 0; i < to.size(); ++i)
            to[i] += from[i];
    }
    /// The usual approximation by tanh.
    static constexpr Real bend = Real(0.044715);
    static constexpr Real steepness = Real(0.7978845608028654);
    static Real gelu(Real x) { return Real(0.5) * x * (1 + std::tanh(steepness * (x + bend * x * x * x))); }
    static Real gelu_slope(Real x) {
        const Real t = std::tanh(steepness * (x + bend * x * x * x));
        return Real(0.5) * (1 + t) + Real(0.5) * x * (1 - t * t) * steepness * (1 + 3 * bend * x * x);
    }

    shape s_;
    attention<Real> attention_;
    norm_pieces norm1_, norm2_;
    weight_pieces project_, output_, widen_, narrow_;
    piece attended_, activated_, middle_gradient_, end_gradient_, projected_, projected_gradient_, widened_, weights_;
};

} // namespace language_model
