#include "optpipe/schedule/construct/memory_levels.hpp"

#include "optpipe/core/random.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

using namespace optpipe;

TEST_CASE("the highest level of a range, after ranges were raised, is that of a plain list") {
    for (std::uint64_t seed = 1; seed <= 100; ++seed) {
        CAPTURE(seed);
        random_numbers random{seed};
        std::vector<memory_size> plain(random.between(1, 40));
        for (auto& each : plain)
            each = memory_size{static_cast<double>(random.below(20))};
        detail::memory_levels levels{plain};
        for (int i = 0; i < 50; ++i) {
            const auto first = random.below(plain.size());
            const auto last = random.between(first, plain.size());
            memory_size highest{};
            for (auto k = first; k < last; ++k)
                highest = std::max(highest, plain[k]);
            CHECK(levels.highest(first, last).value() == highest.value());
            const memory_size more{static_cast<double>(random.below(5))};
            levels.raise(first, last, more);
            for (auto k = first; k < last; ++k)
                plain[k] += more;
        }
    }
}
