#pragma once

#include "optpipe/core/standard.hpp"

#include <cstddef>

namespace optpipe::learning {

/// The i-th length of the restart sequence 1, 1, 2, 1, 1, 2, 4, 1, … for i ≥ 1 (Luby, Sinclair and Zuckerman, 1993).
[[nodiscard]] constexpr std::size_t luby(std::size_t i) {
    for (;;) {
        std::size_t k = 1;
        while ((std::size_t{1} << k) - 1 < i)
            ++k;
        if ((std::size_t{1} << k) - 1 == i) return std::size_t{1} << (k - 1);
        i -= (std::size_t{1} << (k - 1)) - 1;
    }
}
static_assert(luby(1) == 1 && luby(2) == 1 && luby(3) == 2 && luby(6) == 2 && luby(7) == 4 && luby(15) == 8);

} // namespace optpipe::learning
