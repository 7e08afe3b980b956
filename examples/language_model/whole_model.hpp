#pragma once

#include "stage.hpp"
#include "text.hpp"

#include <cstddef>
#include <cstdint>
#include <vector>

namespace language_model {

/// The stages of one model. The layers are shared out evenly, the first stages having one more where that isn't
/// possible; each stage's parameters depend on the seed and its number.
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

/// One step without a pipeline: every microbatch through all stages and back, in turn. Leaves the gradients in the
/// stages; the mean loss per token.
template <class Real>
double unpipelined_step(std::vector<model_stage<Real>>& stages, const text_step& text, std::size_t microbatches) {
    const auto boundary = stages.front().boundary();
    std::vector<std::vector<Real>> kept, freed;
    for (const auto& one : stages) {
        kept.emplace_back(one.kept());
        freed.emplace_back(one.freed());
    }
    std::vector<Real> in(boundary), out(boundary);
    double loss = 0.0;
    for (std::size_t m = 0; m < microbatches; ++m) {
        for (std::size_t i = 0; i < stages.size(); ++i) {
            loss += static_cast<double>(stages[i].forward(text[m], in, kept[i], freed[i], out));
            in.swap(out);
        }
        for (std::size_t i = stages.size(); i-- > 0;) {
            stages[i].backward_input(text[m], static_cast<Real>(text.share()), in, kept[i], freed[i], out);
            stages[i].backward_weight(text[m], kept[i]);
            in.swap(out);
        }
    }
    return loss * text.share();
}

} // namespace language_model
