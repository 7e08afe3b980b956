#pragma once

#include "pipeline_model.hpp"
#include "shape.hpp"
#include "stage.hpp"
#include <optpipe/execution/stage_model.hpp>
#include <optpipe/pipeline/problem.hpp>

#include <algorithm>
#include <cstddef>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

namespace language_model {

/// The same problem with stages that stash no more than their input, the first nothing at all, and make the rest again:
/// a part of their backward, which is longer by a forward and holds all of the stash until W is over. Not for the last
/// stage, where a second forward would count the loss twice.
template <class Real>
[[nodiscard]] optpipe::problem with_recomputation(optpipe::problem p, const std::vector<model_stage<Real>>& stages,
                                                  const std::vector<optpipe::stage>& which) {
    for (const auto s : which) {
        auto& c = p.costs[s];
        const double boundary = p.is_first(s) ? 0.0 : static_cast<double>(stages[s.position()].boundary());
        const optpipe::memory_size input{sizeof(Real) * boundary};
        c.weight_stash = input + c.activation;
        c.activation = input;
        c.backward_input += c.forward;
    }
    return p;
}

/// A `pipeline_model` some of whose stages recompute. Parts of a stash must lie in one piece.
template <class Real> class recomputing_model {
public:
    recomputing_model(std::vector<model_stage<Real>>& stages, std::string_view text, const shape& s,
                      std::size_t microbatches, std::vector<optpipe::stage> which)
        : stages_{&stages}, inner_{stages, text, s, microbatches}, which_{std::move(which)} {
        std::size_t most = 0;
        for (const auto& each : stages)
            most = std::max(most, each.kept() + each.freed());
        scratch_.resize(most);
        output_.resize(stages.front().boundary());
    }

    template <class Lane> void forward(Lane& on, optpipe::execution::forward_task t) {
        if (!recomputes(t.stage)) return inner_.forward(on, t);
        const auto input = optpipe::execution::contiguous(t.kept);
        std::copy(t.input.begin(), t.input.end(), input.begin());
        divide(t, std::as_writable_bytes(std::span{scratch_}));
        inner_.forward(on, t);
    }
    template <class Lane> void recompute(Lane& on, const optpipe::execution::recompute_task& t) {
        optpipe::execution::forward_task again{.stage = t.stage,
                                               .microbatch = t.microbatch,
                                               .input = optpipe::execution::contiguous(t.kept),
                                               .output = std::as_writable_bytes(std::span{output_})};
        divide(again, optpipe::execution::contiguous(t.added));
        inner_.forward(on, again);
    }
    template <class Lane> void backward_input(Lane& on, optpipe::execution::backward_task t) {
        if (recomputes(t.stage)) divide(t, optpipe::execution::contiguous(t.added));
        inner_.backward_input(on, t);
    }
    template <class Lane> void backward_weight(Lane& on, optpipe::execution::weight_task t) {
        if (recomputes(t.stage)) {
            kept_ = optpipe::execution::contiguous(t.added).first(kept_bytes(t.stage));
            t.kept = {&kept_, 1};
        }
        inner_.backward_weight(on, t);
    }
    template <class Lane> void update(Lane& on, optpipe::stage s) { inner_.update(on, s); }

    [[nodiscard]] const std::vector<double>& losses() const { return inner_.losses(); }

private:
    [[nodiscard]] bool recomputes(optpipe::stage s) const {
        return std::find(which_.begin(), which_.end(), s) != which_.end();
    }
    [[nodiscard]] std::size_t kept_bytes(optpipe::stage s) const {
        return sizeof(Real) * (*stages_)[s.position()].kept();
    }
    /// The whole stash of a stage in its two parts.
    template <class Task> void divide(Task& t, std::span<std::byte> whole) {
        kept_ = whole.first(kept_bytes(t.stage));
        freed_ = whole.subspan(kept_.size(), sizeof(Real) * (*stages_)[t.stage.position()].freed());
        t.kept = {&kept_, 1};
        t.freed = {&freed_, 1};
    }

    std::vector<model_stage<Real>>* stages_;
    pipeline_model<Real> inner_;
    std::vector<optpipe::stage> which_;
    std::vector<Real> scratch_, output_;
    /// What the parts of the task at hand point to.
    std::span<std::byte> kept_, freed_;
};

} // namespace language_model
