#pragma once

#include "optpipe/core/standard.hpp"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <limits>
#include <vector>

namespace optpipe::detail {

/// Jobs for one machine, and the earliest time at which all of them can be done. The earliest time is max_h (h + total
/// length of the jobs with a head ≥ h), over all heads h. The data structure is the theta tree of Vilím, Barták and
/// Čepek (2005). The place of a job is its position among all jobs, sorted by head. O(log n) per insertion.
class completion_tree {
public:
    static constexpr double nothing = -std::numeric_limits<double>::infinity();

    void clear(std::size_t places) {
        leaves_ = std::bit_ceil(std::max<std::size_t>(places, 1));
        nodes_.assign(2 * leaves_, {});
    }
    void insert(std::size_t place, double head, double length) {
        std::size_t i = leaves_ + place;
        nodes_[i] = {length, head + length};
        for (i /= 2; i > 0; i /= 2) {
            const auto& left = nodes_[2 * i];
            const auto& right = nodes_[2 * i + 1];
            nodes_[i] = {left.length + right.length, std::max(right.completion, left.completion + right.length)};
        }
    }
    [[nodiscard]] double completion() const { return nodes_[1].completion; }

private:
    struct node {
        double length = 0.0;
        double completion = nothing;
    };
    std::size_t leaves_ = 1;
    std::vector<node> nodes_{};
};

} // namespace optpipe::detail
