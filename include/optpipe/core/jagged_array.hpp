#pragma once

#include "optpipe/core/standard.hpp"

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace optpipe {

/// Rows of different lengths, one after the other in memory.
template <class T> class jagged_array {
public:
    jagged_array() = default;
    explicit jagged_array(const std::vector<std::vector<T>>& rows) {
        begin_.reserve(rows.size() + 1);
        for (const auto& row : rows) {
            values_.insert(values_.end(), row.begin(), row.end());
            begin_.push_back(static_cast<std::uint32_t>(values_.size()));
        }
    }

    [[nodiscard]] std::span<const T> operator[](std::size_t row) const {
        return {values_.data() + begin_[row], values_.data() + begin_[row + 1]};
    }

private:
    std::vector<T> values_{};
    std::vector<std::uint32_t> begin_{0};
};

} // namespace optpipe
