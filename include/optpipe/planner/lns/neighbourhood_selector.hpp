#pragma once

#include "optpipe/core/random.hpp"
#include "optpipe/planner/lns/neighbourhood.hpp"

#include <algorithm>
#include <array>
#include <cstddef>

namespace optpipe::detail {

/// Adaptive choice of the next neighbourhood and of the size of its windows, by the gain of recent windows per cost,
/// with some exploration.
class neighbourhood_selector {
public:
    /// `offloads`: whether anything can be offloaded.
    neighbourhood_selector(bool offloads, double largest)
        : offloads_{offloads}, largest_{std::max(largest, smallest)} {}

    [[nodiscard]] neighbourhood select(random_numbers& random) const {
        double total = 0.0;
        for (const auto how : all_neighbourhoods)
            total += weight(how);
        auto left = total * (static_cast<double>(random.below(1U << 20U)) / static_cast<double>(1U << 20U));
        for (const auto how : all_neighbourhoods) {
            left -= weight(how);
            if (left < 0.0) return how;
        }
        return neighbourhood::interval;
    }
    [[nodiscard]] double size(neighbourhood how) const { return at(how).size; }

    /// `gain`: the relative improvement of the objective. `cost`: in any unit, the same for all. `settled`: whether the
    /// window was searched to the end.
    void update(neighbourhood how, double gain, double cost, bool settled) {
        auto& own = at(how);
        constexpr double memory = 0.85;
        own.gain = memory * own.gain + gain;
        own.cost = memory * own.cost + cost;
        constexpr double growth = 1.2;
        own.size = settled ? own.size * growth : own.size / growth;
        own.size = std::clamp(own.size, smallest, largest_);
    }

private:
    static constexpr double smallest = 12.0;
    struct record {
        double size = 24.0;
        double gain = 0.0;
        double cost = 0.0;
    };
    [[nodiscard]] record& at(neighbourhood how) { return records_[static_cast<std::size_t>(how)]; }
    [[nodiscard]] const record& at(neighbourhood how) const { return records_[static_cast<std::size_t>(how)]; }

    [[nodiscard]] double rate(neighbourhood how) const {
        const auto& own = at(how);
        return own.cost > 0.0 ? own.gain / own.cost : 0.0;
    }
    /// From a tenth to one, relative to the most successful.
    [[nodiscard]] double weight(neighbourhood how) const {
        if (how == neighbourhood::transfers && !offloads_) return 0.0;
        constexpr double exploration = 0.1;
        double best = 0.0;
        for (const auto other : all_neighbourhoods)
            best = std::max(best, rate(other));
        return best > 0.0 ? exploration + rate(how) / best : 1.0;
    }

    bool offloads_;
    double largest_;
    std::array<record, all_neighbourhoods.size()> records_{};
};

} // namespace optpipe::detail
