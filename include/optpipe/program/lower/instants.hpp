#pragma once

#include "optpipe/core/quantity.hpp"

#include <algorithm>
#include <cstddef>
#include <vector>

namespace optpipe::detail {

/// Numbers the instants of a plan. Times within `slack` of each other are one instant.
class plan_instants {
public:
    plan_instants(std::vector<duration> times, duration slack) {
        std::sort(times.begin(), times.end());
        for (const auto t : times)
            if (first_.empty() || t > first_.back() + slack) first_.push_back(t);
    }
    /// The index of the instant that contains the time `t`. Contract: `t` isn't before the first time.
    [[nodiscard]] std::size_t operator()(duration t) const {
        const auto after = std::upper_bound(first_.begin(), first_.end(), t);
        return after == first_.begin() ? 0 : static_cast<std::size_t>(after - first_.begin()) - 1;
    }

private:
    std::vector<duration> first_;
};

} // namespace optpipe::detail
