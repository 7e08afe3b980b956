#pragma once

#include <cstddef>

namespace language_model {

/// What every stage of the model agrees on. Bytes are the tokens.
struct shape {
    std::size_t hidden = 32;
    std::size_t heads = 4;
    std::size_t sequence = 32;
    /// Sequences in one microbatch.
    std::size_t sequences = 2;
    std::size_t vocabulary = 256;

    [[nodiscard]] constexpr std::size_t tokens() const { return sequences * sequence; }
    /// Elements of what one stage hands to the next, and of the gradient that comes back: tokens × hidden.
    [[nodiscard]] constexpr std::size_t boundary() const { return tokens() * hidden; }
    [[nodiscard]] constexpr std::size_t feed_forward() const { return 4 * hidden; }
    [[nodiscard]] constexpr std::size_t head_size() const { return hidden / heads; }
    /// Of one layer's attention: how much each token looks at each other one, for all heads.
    [[nodiscard]] constexpr std::size_t attention_weights() const { return sequences * heads * sequence * sequence; }
};

} // namespace language_model
