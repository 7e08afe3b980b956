#pragma once

#include "optpipe/core/standard.hpp"

#include <algorithm>
#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace optpipe {
namespace detail {

inline char lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }

/// The number of single-letter changes that turn `a` into `b`. A change replaces, adds or removes a letter, or swaps
/// two neighbours. Case is ignored.
inline std::size_t edit_distance(std::string_view a, std::string_view b) {
    std::vector<std::size_t> before;
    std::vector<std::size_t> last(b.size() + 1);
    std::vector<std::size_t> now(b.size() + 1);
    for (std::size_t j = 0; j <= b.size(); ++j)
        last[j] = j;
    for (std::size_t i = 1; i <= a.size(); ++i) {
        now[0] = i;
        for (std::size_t j = 1; j <= b.size(); ++j) {
            const bool same = lower(a[i - 1]) == lower(b[j - 1]);
            now[j] = std::min({last[j] + 1, now[j - 1] + 1, last[j - 1] + (same ? 0 : 1)});
            const bool exchanged =
                i > 1 && j > 1 && lower(a[i - 1]) == lower(b[j - 2]) && lower(a[i - 2]) == lower(b[j - 1]);
            if (exchanged) now[j] = std::min(now[j], before[j - 2] + 1);
        }
        before = std::exchange(last, now);
    }
    return last[b.size()];
}

} // namespace detail

/// The name most similar to `word`; empty if no name is similar. Ties go to the first name.
[[nodiscard]] inline std::optional<std::string> nearest_name(std::string_view word,
                                                             std::span<const std::string> names) {
    // At most one letter in three may be wrong. With a higher limit, any two short words would count as similar.
    constexpr std::size_t letters_per_slip = 3;
    std::optional<std::string> nearest;
    std::size_t least = 0;
    for (const auto& name : names) {
        const auto longer = std::max(word.size(), name.size());
        const auto most = longer / letters_per_slip;
        if (longer - std::min(word.size(), name.size()) > most) continue;
        const auto distance = detail::edit_distance(word, name);
        if (distance > most || (nearest && distance >= least)) continue;
        nearest = name;
        least = distance;
    }
    return nearest;
}

/// A text such as "; did you mean memory_limit?". Empty if no name is similar.
[[nodiscard]] inline std::string suggestion(std::string_view word, std::span<const std::string> names) {
    const auto nearest = nearest_name(word, names);
    return nearest ? "; did you mean " + *nearest + "?" : "";
}

} // namespace optpipe
