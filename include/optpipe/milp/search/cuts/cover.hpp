#pragma once

#include "optpipe/milp/search/cuts/cut.hpp"
#include "optpipe/milp/search/problem.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <utility>
#include <vector>

namespace optpipe::milp::search {

/// Lifted cover cuts of knapsack rows (Balas, 1975). A cover is a set of binaries that can't all be 1. The cut limits
/// the number of binaries that are 1. A binary as heavy as the h heaviest of the cover counts as h binaries. Other
/// columns are set to the bound that leaves the most room.
class cover_separation {
public:
    cover_separation(const problem& p, std::span<const double> lower, std::span<const double> upper)
        : problem_{p}, lower_{lower}, upper_{upper} {}

    void separate(std::span<const double> point, cut_pool& pool) {
        for (std::size_t i = 0; i < problem_.rows(); ++i) {
            if (problem_.row_upper[i] < infinity) separate(i, 1.0, problem_.row_upper[i], point, pool);
            if (problem_.row_lower[i] > -infinity) separate(i, -1.0, -problem_.row_lower[i], point, pool);
        }
    }

private:
    /// A binary or its complement, with a positive weight.
    struct item {
        std::uint32_t column;
        bool flipped;
        double weight;
        double value;
    };

    void separate(std::size_t i, double sign, double limit, std::span<const double> point, cut_pool& pool) {
        if (!collect(i, sign, limit, point) || !cover()) return;
        shrink();
        auto found = lifted();
        found.measure(point);
        if (found.efficacy <= problem_.tolerances.feasibility) return;
        if (auto clean = normalized(std::move(found), lower_, upper_)) pool.add(std::move(*clean));
    }
    bool collect(std::size_t i, double sign, double limit, std::span<const double> point) {
        items_.clear();
        room_ = limit;
        for (const auto& e : problem_.row_entries(i)) {
            const double a = sign * e.coefficient;
            const bool binary = problem_.is_integer(e.column) && lower_[e.column] == 0.0 && upper_[e.column] == 1.0;
            if (!binary) {
                const double bound = a > 0.0 ? lower_[e.column] : upper_[e.column];
                if (!std::isfinite(bound)) return false;
                room_ -= a * bound;
                continue;
            }
            const bool flipped = a < 0.0;
            if (flipped) room_ -= a;
            items_.push_back({e.column, flipped, std::abs(a), flipped ? 1.0 - point[e.column] : point[e.column]});
        }
        return items_.size() > 1 && room_ > problem_.tolerances.feasibility;
    }
    /// Takes items until their total weight exceeds the limit. Items with small (distance from 1) / weight come first.
    bool cover() {
        std::stable_sort(items_.begin(), items_.end(), [](const item& a, const item& b) {
            return (1.0 - a.value) * b.weight < (1.0 - b.value) * a.weight;
        });
        weight_ = 0.0;
        size_ = 0;
        while (size_ < items_.size() && weight_ <= room_ + problem_.tolerances.slack(room_))
            weight_ += items_[size_++].weight;
        return weight_ > room_ + problem_.tolerances.slack(room_);
    }
    /// Removes items until no item can be left out. Items that are farthest from 1 are removed first.
    void shrink() {
        std::vector<item> kept, out;
        std::stable_sort(items_.begin(), items_.begin() + static_cast<std::ptrdiff_t>(size_),
                         [](const item& a, const item& b) { return a.value < b.value; });
        for (std::size_t k = 0; k < size_; ++k) {
            if (weight_ - items_[k].weight > room_ + problem_.tolerances.slack(room_)) {
                weight_ -= items_[k].weight;
                out.push_back(items_[k]);
            } else {
                kept.push_back(items_[k]);
            }
        }
        size_ = kept.size();
        kept.insert(kept.end(), out.begin(), out.end());
        std::copy(kept.begin(), kept.end(), items_.begin());
    }
    [[nodiscard]] cut lifted() const {
        std::vector<double> heaviest;
        for (std::size_t k = 0; k < size_; ++k)
            heaviest.push_back(items_[k].weight);
        std::sort(heaviest.begin(), heaviest.end(), std::greater<>{});
        std::vector<double> sums(1, 0.0);
        for (const double w : heaviest)
            sums.push_back(sums.back() + w);
        cut c;
        c.limit = static_cast<double>(size_) - 1.0;
        for (std::size_t k = 0; k < items_.size(); ++k) {
            std::size_t count = k < size_ ? 1 : 0;
            if (k >= size_)
                while (count + 1 < sums.size() && items_[k].weight >= sums[count + 1] - problem_.tolerances.zero)
                    ++count;
            if (count == 0) continue;
            const double weight = static_cast<double>(count);
            c.entries.push_back({items_[k].column, items_[k].flipped ? -weight : weight});
            if (items_[k].flipped) c.limit -= weight;
        }
        return c;
    }

    const problem& problem_;
    std::span<const double> lower_, upper_;
    std::vector<item> items_;
    std::size_t size_ = 0; ///< number of items in the cover; these items come first in `items_`
    double weight_ = 0.0;
    double room_ = 0.0;
};

} // namespace optpipe::milp::search
