#include "optpipe/planner/partition/least_longest.hpp"

#include "optpipe/core/random.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <vector>

using namespace optpipe;

namespace {

/// The least longest part by trying every begin of the last part.
duration searched(const std::vector<duration>& before, std::size_t begin, std::size_t end, std::size_t parts) {
    auto least = before[end] - before[begin];
    for (auto last = begin; parts > 1 && last <= end; ++last)
        least = std::min(least, std::max(searched(before, begin, last, parts - 1), before[end] - before[last]));
    return least;
}

} // namespace

TEST_CASE("pieces of 3, 1, 1, 3: the longest of two parts takes 4, and the longest of three takes 3") {
    const std::vector<duration> before{duration{0}, duration{3}, duration{4}, duration{5}, duration{8}};
    const detail::least_longest longest{before, 5};
    CHECK(longest(0, 4, 1) == duration{8});
    CHECK(longest(0, 4, 2) == duration{4});
    CHECK(longest(0, 4, 3) == duration{3});
    CHECK(longest(1, 3, 2) == duration{1});
    CHECK(longest(0, 1, 5) == duration{3}); // parts may be empty
    CHECK(longest(2, 2, 3) == duration{0});
}

TEST_CASE("random pieces: the least longest part is the same as by search") {
    random_numbers random{20261132};
    for (int repeat = 0; repeat < 20; ++repeat) {
        std::vector<duration> before(1);
        for (std::size_t piece = random.between(0, 7); piece-- > 0;)
            before.push_back(before.back() + duration{static_cast<double>(random.below(6))});
        const detail::least_longest longest{before, 4};
        for (std::size_t begin = 0; begin < before.size(); ++begin)
            for (auto end = begin; end < before.size(); ++end)
                for (std::size_t parts = 1; parts <= 4; ++parts)
                    CHECK(longest(begin, end, parts) == searched(before, begin, end, parts));
    }
}

TEST_CASE("many pieces: a lower bound in little memory") {
    std::vector<duration> before;
    for (std::size_t piece = 0; piece <= 4096; ++piece)
        before.emplace_back(static_cast<double>(piece));
    const detail::least_longest longest{before, 64};
    CHECK(longest(0, 4096, 64) == duration{64});
    CHECK(longest(0, 10, 4) <= duration{3});
}
