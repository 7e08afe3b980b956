#pragma once

#include "adamw.hpp"
#include "pipeline_model.hpp"
#include <optpipe/core/index.hpp>
#include <optpipe/execution/post_validation.hpp>

#include <algorithm>
#include <cstddef>
#include <span>
#include <string_view>
#include <vector>

namespace language_model {

/// AdamW that can undo its last step. It keeps a copy of parameters and moments from before: 20 bytes for each
/// parameter of 4. Undoing the arithmetic would need no copy, but would round.
template <class Real> class reversible_adamw {
public:
    void step(adamw<Real>& optimizer, std::span<Real> parameters, std::span<const Real> gradients,
              const optpipe::execution::update_decision& by) {
        parameters_.assign(parameters.begin(), parameters.end());
        optimizer_ = optimizer;
        if (!by.is_skip()) optimizer.step(parameters, gradients, by.scale);
    }
    void roll_back(adamw<Real>& optimizer, std::span<Real> parameters) const {
        std::copy(parameters_.begin(), parameters_.end(), parameters.begin());
        optimizer = optimizer_;
    }

private:
    std::vector<Real> parameters_;
    adamw<Real> optimizer_{0, {}};
};

/// A pipeline model for `post_validated`: gradients are scaled down if the norm over all stages is too large, and a
/// step is skipped if a gradient overflowed.
template <class Real> class reversible_model : public pipeline_model<Real> {
public:
    /// See `pipeline_model`.
    reversible_model(std::vector<model_stage<Real>>& stages, std::string_view text, const shape& s,
                     std::size_t microbatches, const adamw_rates& rates = {})
        : pipeline_model<Real>{stages, text, s, microbatches, rates}, before_(stages.size()) {}

    template <class Lane> double gradient_squares(Lane&, optpipe::stage s) {
        double sum = 0.0;
        for (const Real g : this->stage(s).gradients())
            sum += static_cast<double>(g) * static_cast<double>(g);
        return sum;
    }
    template <class Lane> void update(Lane&, optpipe::stage s, const optpipe::execution::update_decision& by) {
        make_step(s, by);
        this->end_step(s);
    }
    template <class Lane> void revise(Lane&, optpipe::stage s, const optpipe::execution::update_decision& by) {
        before_[s.position()].roll_back(this->optimizer(s), this->stage(s).parameters());
        make_step(s, by);
    }
    template <class Lane> void settle(Lane&, optpipe::stage s) {
        const auto gradients = this->stage(s).gradients();
        std::fill(gradients.begin(), gradients.end(), Real{});
    }
    template <class Lane> void abandon(Lane&, optpipe::stage s) { static_cast<void>(this->stage(s).take_loss()); }

private:
    void make_step(optpipe::stage s, const optpipe::execution::update_decision& by) {
        auto& at = this->stage(s);
        before_[s.position()].step(this->optimizer(s), at.parameters(), at.gradients(), by);
    }

    std::vector<reversible_adamw<Real>> before_;
};

} // namespace language_model
