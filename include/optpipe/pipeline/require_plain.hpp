#pragma once

#include "optpipe/core/error.hpp"
#include "optpipe/pipeline/problem.hpp"

#include <string>
#include <string_view>

namespace optpipe {

/// The end of the error message of functions that only support plain problems (`is_plain`).
inline constexpr std::string_view only_for_plain =
    " only for a chain of stages with gradients of weights and equal microbatches, without groups and pairs";

/// Throws `optpipe::error` unless the problem is plain. `what` begins the error message, such as "a page is".
inline void require_plain(const problem& p, std::string_view what) {
    if (!is_plain(p)) throw error{std::string{what}.append(only_for_plain)};
}

/// Throws `optpipe::error` unless the problem would be plain without its pairs.
inline void require_plain_without_pairs(const problem& p, std::string_view what) {
    if (!is_plain_without_pairs(p))
        throw error{std::string{what} +
                    " only for a chain of stages with gradients of weights and equal microbatches, without groups"};
}

} // namespace optpipe
