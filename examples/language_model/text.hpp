#pragma once

#include "shape.hpp"
#include "stage.hpp"

#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string_view>
#include <vector>

namespace language_model {

/// The microbatches of a step, taken from places of a text that depend on the step alone.
class text_step {
public:
    /// The text must be longer than one sequence, and the microbatches a multiple of the slices.
    text_step(std::string_view text, const shape& s, std::size_t microbatches, std::size_t step)
        : per_microbatch_{s.tokens()}, slices_{s.slices}, tokens_(microbatches * s.tokens()), targets_(tokens_.size()) {
        if (microbatches % s.slices != 0)
            throw std::invalid_argument{"the number of microbatches must be a multiple of that of slices"};
        const auto places = text.size() - s.context();
        const auto rows = microbatches / s.slices * s.sequences;
        for (std::size_t row = 0; row < rows; ++row) {
            constexpr std::size_t stride = 7919; // a prime: consecutive rows come from all over the text
            const auto begin = (step * rows + row) * stride % places;
            for (std::size_t t = 0; t < s.context(); ++t) {
                const auto microbatch = row / s.sequences * s.slices + t / s.sequence;
                const auto at = (microbatch * s.sequences + row % s.sequences) * s.sequence + t % s.sequence;
                tokens_[at] = static_cast<std::uint8_t>(text[begin + t]);
                targets_[at] = static_cast<std::uint8_t>(text[begin + t + 1]);
            }
        }
    }
    [[nodiscard]] text_batch operator[](std::size_t microbatch) const {
        const auto begin = microbatch * per_microbatch_;
        return {std::span{tokens_}.subspan(begin, per_microbatch_), std::span{targets_}.subspan(begin, per_microbatch_),
                microbatch % slices_};
    }
    /// All microbatches, one after the other.
    [[nodiscard]] text_batch all() const { return {tokens_, targets_, 0}; }
    /// The weight of one token's loss, so that the step's loss is the mean.
    [[nodiscard]] double share() const { return 1.0 / static_cast<double>(tokens_.size()); }

private:
    std::size_t per_microbatch_;
    std::size_t slices_;
    std::vector<std::uint8_t> tokens_, targets_;
};

} // namespace language_model
