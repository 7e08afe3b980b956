#pragma once

#include <cstddef>

namespace language_model {

/// The sizes common to all stages of the model. Tokens are bytes.
struct shape {
    std::size_t hidden = 32;
    std::size_t heads = 4;
    /// Tokens of a sequence in one microbatch: all, or those of one slice.
    std::size_t sequence = 32;
    /// Sequences in one microbatch.
    std::size_t sequences = 2;
    std::size_t vocabulary = 256;
    /// Consecutive microbatches that are the slices of the same sequences.
    std::size_t slices = 1;

    /// Tokens of a whole sequence.
    [[nodiscard]] constexpr std::size_t context() const { return slices * sequence; }
    [[nodiscard]] constexpr std::size_t tokens() const { return sequences * sequence; }
    /// Elements of the activation that one stage passes to the next, and of its gradient: tokens × hidden.
    [[nodiscard]] constexpr std::size_t boundary() const { return tokens() * hidden; }
    [[nodiscard]] constexpr std::size_t feed_forward() const { return 4 * hidden; }
    [[nodiscard]] constexpr std::size_t head_size() const { return hidden / heads; }
    /// Number of attention weights of one layer, for all heads.
    [[nodiscard]] constexpr std::size_t attention_weights() const { return sequences * heads * sequence * context(); }
    /// Elements of the keys and values of one layer: tokens × (2 × hidden).
    [[nodiscard]] constexpr std::size_t keys_values() const { return 2 * boundary(); }
};

} // namespace language_model
