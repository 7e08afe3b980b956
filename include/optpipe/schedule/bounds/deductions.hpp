#pragma once

#include "optpipe/schedule/bounds/chains.hpp"
#include "optpipe/schedule/bounds/order_counts.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <limits>
#include <vector>

namespace optpipe::detail {

/// Deductions about the schedules with an objective of at most `horizon`. `changed` flags the devices with new
/// deductions.
///
/// Times are counted from both ends of the step. `times[0]` has the least time from the start of the step to the start
/// of the k-th operation of a chain. In `times[1]`, operations are counted from the end of the step. Each time is the
/// least time from the operation's end to `horizon`. For `span`, the step lasts from the first start to the last end on
/// one device.
struct deductions {
    static constexpr double unknown = -std::numeric_limits<double>::infinity();

    deductions(const chain_system& c, std::size_t reference) : system{&c}, changed(c.devices.size(), true) {
        for (std::size_t side = 0; side < 2; ++side) {
            bases[side].assign(c.devices.size(), c.span ? unknown : 0.0);
            if (c.span) bases[side][reference] = 0.0;
            times[side].assign(c.chain_of.size(), unknown);
        }
        for (const auto& on : c.devices)
            orders.emplace_back(c, on);
    }

    [[nodiscard]] double time(std::size_t side, std::size_t chain, std::size_t k) const {
        return begin(side, chain)[k];
    }
    [[nodiscard]] const double* begin(std::size_t side, std::size_t chain) const {
        return times[side].data() + system->first[chain];
    }
    [[nodiscard]] const double* end(std::size_t side, std::size_t chain) const {
        return begin(side, chain) + system->count[chain];
    }
    [[nodiscard]] double latest_end(std::size_t chain, std::size_t k) const {
        return horizon - time(1, chain, system->count[chain] - 1 - k);
    }
    [[nodiscard]] double latest_start(std::size_t chain, std::size_t k) const {
        return latest_end(chain, k) - system->length[chain];
    }

    void raise(std::size_t side, std::size_t chain, std::size_t k, double value) {
        auto& t = times[side][system->first[chain] + k];
        if (!(value > t)) return;
        if (value > t + system->time_slack) changed[system->rank_of[chain]] = true;
        t = value;
    }
    void raise_base(std::size_t side, std::size_t device, double value) {
        auto& base = bases[side][device];
        if (!(value > base)) return;
        if (value > base + system->time_slack) changed[device] = true;
        base = value;
    }

    const chain_system* system;
    double horizon = std::numeric_limits<double>::infinity();
    std::array<std::vector<double>, 2> times{};
    /// `bases[0]` is the earliest start of each device. `bases[1]` is the least time from its last end to `horizon`.
    std::array<std::vector<double>, 2> bases{};
    std::vector<order_counts> orders{};
    std::vector<char> changed{};
};

} // namespace optpipe::detail
