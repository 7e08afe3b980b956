#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdlib>

namespace oracle {

/// How many random cases a test tries of those that it usually does, and how often it expects what it counts in them:
/// one in OPTPIPE_RANDOM_CASES, an environment variable that the presets of the sanitizers set, as each case takes many
/// times as long there.
inline std::uint64_t random_cases(std::uint64_t usual) {
    const char* given = std::getenv("OPTPIPE_RANDOM_CASES");
    const auto one_in = given ? std::strtoull(given, nullptr, 10) : 1;
    return std::max<std::uint64_t>(1, usual / std::max<std::uint64_t>(1, one_in));
}

} // namespace oracle
