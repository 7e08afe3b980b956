#pragma once

#include "optpipe/core/random.hpp"
#include "optpipe/planner/lns/neighbourhood.hpp"
#include "optpipe/planner/lns/parameters.hpp"

#include <algorithm>
#include <array>
#include <cstddef>

namespace optpipe::detail {

/// A random number in [0, 1).
[[nodiscard]] inline double random_share(random_numbers& random) {
    constexpr std::size_t grains = std::size_t{1} << 20U;
    return static_cast<double>(random.below(grains)) / static_cast<double>(grains);
}

/// Adaptive choice of the next neighbourhood and of the size of its windows, by the gain of its recent windows per
/// cost, with some exploration.
class neighbourhood_selector {
public:
    /// `offloads`: whether anything can be offloaded. `has_storage_options`: whether any stage lists some.
    neighbourhood_selector(bool offloads, bool has_storage_options, double largest, const window_parameters& with = {})
        : offloads_{offloads},
          has_storage_options_{has_storage_options}, largest_{std::max(largest, with.least_size)}, with_{with} {
        for (auto& own : records_)
            own.size = with.first_size;
    }

    [[nodiscard]] neighbourhood select(random_numbers& random) const {
        double total = 0.0;
        for (const auto how : all_neighbourhoods)
            total += weight(how);
        auto left = total * random_share(random);
        for (const auto how : all_neighbourhoods) {
            left -= weight(how);
            if (left < 0.0) return how;
        }
        return neighbourhood::interval;
    }
    [[nodiscard]] double size(neighbourhood how) const { return at(how).size; }

    /// Records a window. `gain`: relative improvement of the objective. `cost`: in any unit that is the same for all.
    /// `settled`: whether the window was searched completely.
    void update(neighbourhood how, double gain, double cost, bool settled) {
        auto& own = at(how);
        own.gain = with_.memory * own.gain + gain;
        own.cost = with_.memory * own.cost + cost;
        own.size = settled ? own.size * with_.growth : own.size / with_.growth;
        own.size = std::clamp(own.size, with_.least_size, largest_);
    }

private:
    struct record {
        double size = 0.0;
        double gain = 0.0;
        double cost = 0.0;
    };
    [[nodiscard]] record& at(neighbourhood how) { return records_[static_cast<std::size_t>(how)]; }
    [[nodiscard]] const record& at(neighbourhood how) const { return records_[static_cast<std::size_t>(how)]; }

    [[nodiscard]] double rate(neighbourhood how) const {
        const auto& own = at(how);
        return own.cost > 0.0 ? own.gain / own.cost : 0.0;
    }
    /// The weight of exploration plus the rate of gain relative to the best kind's.
    [[nodiscard]] double weight(neighbourhood how) const {
        if (how == neighbourhood::transfers && !offloads_) return 0.0;
        if (how == neighbourhood::storage && !has_storage_options_) return 0.0;
        double best = 0.0;
        for (const auto other : all_neighbourhoods)
            best = std::max(best, rate(other));
        return best > 0.0 ? with_.exploration + rate(how) / best : 1.0;
    }

    bool offloads_;
    bool has_storage_options_;
    double largest_;
    window_parameters with_;
    std::array<record, all_neighbourhoods.size()> records_{};
};

} // namespace optpipe::detail
