#pragma once

#include <cstdint>

namespace optpipe::exact {

/// Why a fact holds. `stored`: the facts at [data, data + size) of the trail's explanations.
struct cause {
    enum class kind : std::uint8_t { decision, clause, arc, stored };
    kind how = kind::decision;
    std::uint32_t data = 0;
    std::uint32_t size = 0;
};

} // namespace optpipe::exact
