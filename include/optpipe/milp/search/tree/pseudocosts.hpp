#pragma once

#include "optpipe/milp/bytes.hpp"

#include <algorithm>
#include <cstddef>
#include <span>
#include <vector>

namespace optpipe::milp::search {

/// Observed costs of rounding each column down and up, per unit of distance (Bénichou et al., 1971).
class pseudocosts {
public:
    /// One observation: a move by `distance` raised the bound by `gain`.
    struct observation {
        std::size_t column;
        bool up;
        double distance;
        double gain;
    };

    explicit pseudocosts(std::size_t columns)
        : sides_{{std::vector<side>(columns), {}}, {std::vector<side>(columns), {}}} {}

    void add(const observation& o) {
        constexpr double least_distance = 1e-6;
        if (o.distance < least_distance) return;
        auto& all = sides_[o.up ? 1 : 0];
        const double unit = std::max(0.0, o.gain) / o.distance;
        for (auto* s : {&all.of[o.column], &all.sum}) {
            s->total += unit;
            ++s->count;
        }
    }
    [[nodiscard]] std::size_t count(std::size_t column, bool up) const { return sides_[up ? 1 : 0].of[column].count; }
    /// The number of observations in the direction with fewer observations.
    [[nodiscard]] std::size_t reliability(std::size_t column) const {
        return std::min(count(column, false), count(column, true));
    }
    /// The column's mean cost per unit of distance, or all columns' mean without observations.
    [[nodiscard]] double unit(std::size_t column, bool up) const {
        const auto& all = sides_[up ? 1 : 0];
        const auto& own = all.of[column];
        if (own.count > 0) return own.total / static_cast<double>(own.count);
        return all.sum.count > 0 ? all.sum.total / static_cast<double>(all.sum.count) : 1.0;
    }
    /// A score that is high if both directions have high costs.
    [[nodiscard]] static double score(double down, double up) {
        constexpr double least = 1e-6;
        return std::max(down, least) * std::max(up, least);
    }

    [[nodiscard]] std::size_t bytes() const { return bytes_of(sides_[0].of, sides_[1].of); }

private:
    struct side {
        double total = 0.0;
        std::size_t count = 0;
    };
    struct direction {
        std::vector<side> of;
        side sum;
    };
    direction sides_[2];
};

} // namespace optpipe::milp::search
