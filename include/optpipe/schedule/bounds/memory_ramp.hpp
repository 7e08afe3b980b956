#pragma once

#include "optpipe/core/standard.hpp"

#include <algorithm>
#include <cstddef>
#include <vector>

namespace optpipe::detail {

/// The time in which operations fill a rank's memory at the start, or empty it at the end.
struct memory_ramp {
    /// The unused area (memory × time) during the ramp, and the ramp's duration.
    double unused = 0.0;
    double time = 0.0;
};

/// The operations of a rank that take memory, counted from the first start, or release memory, counted back from the
/// last end. The memory taken within a time is at most a fractional knapsack's optimum plus one operation that has
/// started but not ended.
class ramp_operations {
public:
    /// Adds `count` operations, each of which takes `size` and runs for `length`.
    void add(double size, double length, std::size_t count) {
        if (size <= 0.0) return;
        all_.push_back({size / length, length * static_cast<double>(count)});
        add_at_once(size);
    }
    /// Notes that one operation may take `size` at once.
    void add_at_once(double size) { largest_ = std::max(largest_, size); }
    [[nodiscard]] memory_ramp below(double limit) const {
        auto sorted = all_;
        std::sort(sorted.begin(), sorted.end(), [](const auto& a, const auto& b) { return a.rate > b.rate; });
        double in_use = largest_;
        memory_ramp found;
        for (const auto& each : sorted) {
            if (in_use >= limit) break;
            const double time = std::min(each.length, (limit - in_use) / each.rate);
            const double taken = each.rate * time;
            found.unused += time * (limit - in_use - 0.5 * taken);
            found.time += time;
            in_use += taken;
        }
        return found;
    }

private:
    struct operations {
        double rate = 0.0; ///< memory per time
        double length = 0.0;
    };
    std::vector<operations> all_{};
    double largest_ = 0.0;
};

} // namespace optpipe::detail
