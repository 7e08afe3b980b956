#pragma once

#include "optpipe/core/standard.hpp"

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace optpipe::milp::search {

/// A sum of sparse rows. Magnitudes are also summed, because a small remainder after cancellation is noise.
class sparse_sum {
public:
    explicit sparse_sum(std::size_t columns) : values_(columns, 0.0), sizes_(columns, 0.0) {}

    void add(std::size_t j, double part) {
        if (part == 0.0) return;
        if (sizes_[j] == 0.0) touched_.push_back(static_cast<std::uint32_t>(j));
        values_[j] += part;
        sizes_[j] += std::abs(part);
    }
    void clear() {
        for (const auto j : touched_)
            values_[j] = sizes_[j] = 0.0;
        touched_.clear();
    }
    [[nodiscard]] double operator[](std::size_t j) const { return values_[j]; }
    [[nodiscard]] double size_of(std::size_t j) const { return sizes_[j]; }
    [[nodiscard]] bool is_noise(std::size_t j) const { return std::abs(values_[j]) <= rounding * sizes_[j]; }
    /// Columns with at least one nonzero part. Lists each column once, in the order of first parts.
    [[nodiscard]] std::span<const std::uint32_t> touched() const { return touched_; }

private:
    /// Relative rounding error of sums of doubles, including sums of computed coefficients.
    static constexpr double rounding = 1e-11;

    std::vector<double> values_, sizes_;
    std::vector<std::uint32_t> touched_;
};

} // namespace optpipe::milp::search
