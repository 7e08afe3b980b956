#pragma once

#include "optpipe/core/common_divisor.hpp"
#include "optpipe/formulation/operation_table.hpp"
#include "optpipe/schedule/rules/dependencies.hpp"

#include <cmath>
#include <cstddef>
#include <optional>
#include <vector>

namespace optpipe::formulation {

/// The largest unit that divides all times of a problem. Empty unless the times are decimals with few digits. Makespans
/// of simulated schedules are multiples of the unit, so bounds can be rounded.
[[nodiscard]] inline std::optional<double> time_grid(const operation_table& t) {
    std::vector<double> times;
    for (operation_id a = 0; a < t.size(); ++a) {
        if (!t.exists(a) || (t.problem().is_simple() && t.microbatch_of(a) > 0)) continue;
        for (const auto o : t.options(t.stage_of(a)))
            times.push_back(t.length(a, o));
        for_each_input_of_others(t.problem(), t.operation_of(a),
                                 [&](const operation&, duration delay) { times.push_back(delay.value()); });
    }
    for (const rank r : t.problem().graph.all_ranks())
        for (const rank q : t.problem().graph.all_ranks())
            times.push_back(t.problem().p2p(r, q).value());
    const auto grid = common_divisor_of(times);
    return grid && *grid > 0.0 ? grid : std::nullopt;
}

/// The largest multiple of `grid` that is at most `time`, except for rounding errors.
[[nodiscard]] inline double round_down(double time, double grid) {
    constexpr double rounding = 1e-6;
    return grid * std::floor(time / grid + rounding);
}
/// The smallest multiple of `grid` that is at least `time`, except for rounding errors.
[[nodiscard]] inline double round_up(double time, double grid) {
    constexpr double rounding = 1e-6;
    return grid * std::ceil(time / grid - rounding);
}

} // namespace optpipe::formulation
