#pragma once

#include "optpipe/core/quantity.hpp"
#include "optpipe/schedule/construct/transfer_pair.hpp"

#include <algorithm>
#include <cstddef>
#include <vector>

namespace optpipe::detail {

/// The slots of the ranks on one link. All slots are as long as the longest transfer. In each period, a rank has one
/// slot for an offload and one for a reload. All ranks have the same period. If the engines or the link forbid
/// simultaneous transfers, slots don't overlap.
struct slot_pattern {
    duration length{};
    std::size_t members = 1;
    bool one_engine = true;
    bool half_duplex = false;

    [[nodiscard]] constexpr duration period() const {
        const auto count = half_duplex ? 2 * members : one_engine ? std::max<std::size_t>(2, members) : members;
        return static_cast<double>(count) * length;
    }
    [[nodiscard]] constexpr duration offload_phase(std::size_t member) const {
        return static_cast<double>(half_duplex ? 2 * member : member) * length;
    }
    /// On a full-duplex link, a rank reloads while its neighbour offloads.
    [[nodiscard]] constexpr duration reload_phase(std::size_t member) const {
        if (half_duplex) return offload_phase(member) + length;
        if (!one_engine) return offload_phase(member);
        return static_cast<double>((member + 1) % std::max<std::size_t>(2, members)) * length;
    }
};

/// Like `std::floor`, but constexpr.
constexpr double rounded_down(double value) {
    constexpr double integral = 1e16; // doubles this large are integral, and a cast could overflow
    if (value >= integral || value <= -integral) return value;
    const auto truncated = static_cast<double>(static_cast<long long>(value));
    return truncated > value ? truncated - 1.0 : truncated;
}

/// As in PipeOffload (Wan et al., 2025, section 5), every rank alternates between slots for offloads and reloads. An
/// offload takes the first slot after its forward. A reload takes the last slot before its gradient. Slots may stay
/// empty. Slots begin when the first stash may be offloaded. If a transfer finds no slot, its pair isn't in time
/// (`transfer_pair::is_in_time`). Contract: transfers take time.
OPTPIPE_CONSTEXPR void place_in_slots(const slot_pattern& pattern, std::vector<transfer_pair>& transfer_pairs,
                                      duration slack) {
    const auto period = pattern.period();
    std::sort(transfer_pairs.begin(), transfer_pairs.end(),
              [](const transfer_pair& a, const transfer_pair& b) { return a.leaves < b.leaves; });
    const auto origin = transfer_pairs.empty() ? duration{} : transfer_pairs.front().leaves;
    std::vector<double> next(pattern.members, 0.0);
    for (auto& t : transfer_pairs) {
        const auto phase = origin + pattern.offload_phase(t.member);
        next[t.member] = std::max(next[t.member], -rounded_down((phase + slack - t.leaves) / period));
        t.offload_start = phase + next[t.member] * period;
        next[t.member] += 1.0;
    }
    std::sort(transfer_pairs.begin(), transfer_pairs.end(),
              [](const transfer_pair& a, const transfer_pair& b) { return a.due > b.due; });
    std::vector<duration> free_from(pattern.members, duration::unlimited());
    for (auto& t : transfer_pairs) {
        const auto phase = origin + pattern.reload_phase(t.member);
        const auto latest = std::min(t.due - t.reload, free_from[t.member] - period) + slack;
        t.reload_start = phase + rounded_down((latest - phase) / period) * period;
        free_from[t.member] = t.reload_start;
    }
}

} // namespace optpipe::detail
