#pragma once

#include "optpipe/core/standard.hpp"

#include <cstddef>
#include <cstdint>

namespace optpipe {

/// A random number generator whose sequence depends on the seed alone, not on compiler or library. Works in constant
/// expressions. Meant for searches and tests, not for secrets. The method is SplitMix64 (Steele, Lea and Flood, 2014).
class random_numbers {
public:
    constexpr explicit random_numbers(std::uint64_t seed) : state_{seed} {}

    constexpr std::uint64_t next() {
        state_ += 0x9e3779b97f4a7c15U;
        auto z = state_;
        z = (z ^ (z >> 30U)) * 0xbf58476d1ce4e5b9U;
        z = (z ^ (z >> 27U)) * 0x94d049bb133111ebU;
        return z ^ (z >> 31U);
    }
    /// A random number below `count`, which must be above 0.
    constexpr std::size_t below(std::size_t count) { return static_cast<std::size_t>(next() % count); }
    /// A random number from `low` to `high`, both included.
    constexpr std::size_t between(std::size_t low, std::size_t high) { return low + below(high - low + 1); }
    /// A random number in [0, 1).
    constexpr double share() {
        constexpr unsigned bits = 20;
        return static_cast<double>(below(std::size_t{1} << bits)) / static_cast<double>(std::size_t{1} << bits);
    }
    constexpr bool chance(std::size_t percent) { return below(100) < percent; }

private:
    std::uint64_t state_;
};

} // namespace optpipe
