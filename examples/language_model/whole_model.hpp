#pragma once

#include "stage.hpp"
#include "text.hpp"

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace language_model {

/// The stages of one model. Layers are distributed evenly; the remaining ones go to the first stages, one each. The
/// parameters of each stage depend on the seed and the stage's number.
template <class Real>
[[nodiscard]] std::vector<model_stage<Real>> make_stages(const shape& s, std::size_t layers, std::size_t stages,
                                                         std::uint64_t seed) {
    std::vector<model_stage<Real>> result;
    result.reserve(stages);
    for (std::size_t i = 0; i < stages; ++i) {
        const stage_place place{layers / stages + (i < layers % stages ? 1 : 0), i == 0, i + 1 == stages};
        result.emplace_back(s, place, seed + i);
    }
    return result;
}

/// One step without a pipeline: every microbatch passes through all stages and back, one after the other. Leaves the
/// gradients in the stages, and returns the mean loss per token. `text` is like a `text_step`, in memory that the
/// stages' math can read.
template <class Real, class Math, class Text>
double unpipelined_step(std::vector<model_stage<Real, Math>>& stages, const Text& text, std::size_t microbatches) {
    using stage_type = model_stage<Real, Math>;
    std::vector<typename stage_type::storage> kept, freed;
    for (auto& one : stages) {
        kept.push_back(one.zeros(one.kept()));
        freed.push_back(one.zeros(one.freed()));
    }
    auto in = stages.front().zeros(stages.front().boundary());
    auto out = stages.front().zeros(stages.front().boundary());
    const auto of = [](auto& buffer) { return stage_type::of(buffer); };
    for (std::size_t m = 0; m < microbatches; ++m) {
        for (std::size_t i = 0; i < stages.size(); ++i) {
            stages[i].forward(text[m], of(in), of(kept[i]), of(freed[i]), of(out));
            std::swap(in, out);
        }
        for (std::size_t i = stages.size(); i-- > 0;) {
            stages[i].backward_input(text[m], static_cast<Real>(text.share()), of(in), of(kept[i]), of(freed[i]),
                                     of(out));
            stages[i].backward_weight(text[m], of(kept[i]));
            std::swap(in, out);
        }
    }
    return stages.back().take_loss() * text.share();
}

} // namespace language_model
