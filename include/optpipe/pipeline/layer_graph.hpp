#pragma once

#include "optpipe/core/index.hpp"
#include "optpipe/core/quantity.hpp"

#include <cstddef>
#include <variant>

namespace optpipe {

/// Layer `to` uses the output of layer `from`, and sends the gradient back. `from` < `to`. Layers are counted from 0.
struct layer_edge {
    std::size_t from = 0;
    std::size_t to = 0;
    /// Factor on the communication time between the ranks of the two layers' stages.
    double size = 1.0;
    /// Device memory of data that waits to be used (`edge::held`). Counts only if the two layers are in different
    /// stages.
    memory_size held{};
    friend bool operator==(const layer_edge&, const layer_edge&) = default;
};

/// Fixes a layer to a stage or to a rank.
struct layer_pin {
    std::size_t layer = 0;
    std::variant<stage, rank> where{};
    friend bool operator==(const layer_pin&, const layer_pin&) = default;
};

} // namespace optpipe
