#pragma once

#include "optpipe/core/standard.hpp"

#include <cstdint>

namespace optpipe::cp {

/// The reason of a fact. A `stored` reason consists of the facts at [data, data + size) of the trail's explanations.
struct reason {
    enum class kind : std::uint8_t { decision, clause, arc, stored };
    kind how = kind::decision;
    std::uint32_t data = 0;
    std::uint32_t size = 0;
};

} // namespace optpipe::cp
