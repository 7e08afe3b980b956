#pragma once

#include <cstddef>

namespace language_model {

/// The sizes common to all stages of the model. Tokens are bytes.
struct shape {
    std::size_t hidden = 32;
    std::size_t heads = 4;
    std::size_t sequence = 32;
    /// Sequences in one microbatch.
    std::size_t sequences = 2;
    std::size_t vocabulary = 256;

    [[nodiscard]] constexpr std::size_t tokens() const { return sequences * sequence; }
    /// Elements of the activation that one stage passes to the next, and of its gradient: tokens × hidden.
    [[nodiscard]] constexpr std::size_t boundary() const { return tokens() * hidden; }
    [[nodiscard]] constexpr std::size_t feed_forward() const { return 4 * hidden; }
    [[nodiscard]] constexpr std::size_t head_size() const { return hidden / heads; }
    /// Number of attention weights of one layer, for all heads.
    [[nodiscard]] constexpr std::size_t attention_weights() const { return sequences * heads * sequence * sequence; }
};

} // namespace language_model
