#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdlib>

namespace oracle {

/// The value of an environment variable; 1 if it isn't set.
inline std::uint64_t number_from(const char* variable) {
    const char* given = std::getenv(variable);
    return std::max<std::uint64_t>(1, given ? std::strtoull(given, nullptr, 10) : 1);
}

/// The number of random cases that a test tries out of its usual number, and the factor for its expected counts: one in
/// OPTPIPE_RANDOM_CASES. The presets of the sanitizers set this environment variable, as each case takes many times as
/// long there, and so does cmake/test.cmake without guards. OPTPIPE_MORE_CASES times as many are tried for more
/// certainty than every day.
inline std::uint64_t random_cases(std::uint64_t usual) {
    const auto cases = usual * number_from("OPTPIPE_MORE_CASES") / number_from("OPTPIPE_RANDOM_CASES");
    return std::max<std::uint64_t>(1, cases);
}

/// A test tries every n-th case of a list: n is 1, but OPTPIPE_RANDOM_CASES and at most `most` if there are fewer
/// random cases.
inline std::uint64_t stride(std::uint64_t most) { return std::min(most, number_from("OPTPIPE_RANDOM_CASES")); }

} // namespace oracle
