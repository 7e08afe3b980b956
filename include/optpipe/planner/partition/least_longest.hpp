#pragma once

#include "optpipe/core/quantity.hpp"

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

namespace optpipe::detail {

/// For consecutive pieces that are divided into consecutive parts, the least time that the longest part can have. If
/// the table of these times would be large, the mean time of the parts instead.
class least_longest {
public:
    least_longest() = default;
    /// `before[i]` is the time of the first i pieces, and never decreases. There are at most `most` parts. O(pieces² ·
    /// most) time and space, unless that is above `most_entries`.
    least_longest(std::vector<duration> before, std::size_t most) : before_{std::move(before)} {
        constexpr std::size_t most_entries = 1'000'000; // 8 MB; filled in some milliseconds
        if (before_.size() * (before_.size() + 1) / 2 > most_entries / most) return;
        least_.resize(most);
        for (std::size_t begin = 0; begin < before_.size(); ++begin)
            for (std::size_t part = 0; part < most; ++part)
                add_row(begin, part);
    }

    /// The least time of the longest part, if the pieces from `begin` to `end` are divided into `parts` parts. Parts
    /// may be empty. Contract: `begin` is at most `end`, and `parts` is positive and at most `most`.
    [[nodiscard]] duration operator()(std::size_t begin, std::size_t end, std::size_t parts) const {
        if (least_.empty()) return (before_[end] - before_[begin]) / static_cast<double>(parts);
        return least_[parts - 1][place(begin) + end - begin];
    }

private:
    /// The number of intervals that begin before `begin`.
    [[nodiscard]] std::size_t place(std::size_t begin) const {
        return begin * before_.size() - begin * (begin - 1) / 2;
    }
    /// Finds the values of all intervals that begin at `begin`. The best begin of the last part never decreases if the
    /// end increases.
    void add_row(std::size_t begin, std::size_t part) {
        auto last = begin;
        for (auto end = begin; end < before_.size(); ++end) {
            const auto longest = [&](std::size_t at) {
                const auto first = part == 0 ? duration{} : (*this)(begin, at, part);
                return std::max(first, before_[end] - before_[at]);
            };
            while (part > 0 && last < end && longest(last + 1) <= longest(last))
                ++last;
            least_[part].push_back(longest(last));
        }
    }

    std::vector<duration> before_;
    /// Indexed by the number of parts − 1, and then by the start and the end.
    std::vector<std::vector<duration>> least_;
};

} // namespace optpipe::detail
