#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdlib>

namespace oracle {

/// The value of an environment variable; 1 where it isn't set.
inline std::uint64_t number_from(const char* variable) {
    const char* given = std::getenv(variable);
    return std::max<std::uint64_t>(1, given ? std::strtoull(given, nullptr, 10) : 1);
}

/// How many random cases a test tries of those that it usually does, and how often it expects what it counts in them:
/// one in OPTPIPE_RANDOM_CASES, an environment variable that the presets of the sanitizers set, as each case takes many
/// times as long there, and cmake/test.cmake without guards; OPTPIPE_MORE_CASES times as many, to be surer than every
/// day.
inline std::uint64_t random_cases(std::uint64_t usual) {
    const auto cases = usual * number_from("OPTPIPE_MORE_CASES") / number_from("OPTPIPE_RANDOM_CASES");
    return std::max<std::uint64_t>(1, cases);
}

/// Every how manyth of the cases of a list a test tries: each, but `most` where there are fewer random cases.
inline std::uint64_t stride(std::uint64_t most) { return std::min(most, number_from("OPTPIPE_RANDOM_CASES")); }

} // namespace oracle
