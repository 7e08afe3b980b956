#pragma once

#include "optpipe/core/index.hpp"
#include "optpipe/core/quantity.hpp"
#include "optpipe/core/stop_check.hpp"
#include "optpipe/pipeline/costs.hpp"
#include "optpipe/planner/partition/rank_load.hpp"
#include "optpipe/schedule/bounds/chains.hpp"
#include "optpipe/schedule/bounds/propagation.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <limits>
#include <optional>
#include <vector>

namespace optpipe::detail {

/// Propagation (`propagation_bound`) for a rank that has one or two stages, with the least times that microbatches
/// spend on other ranks.
///
/// Before a rank's first stage, between its stages and after its last stage, microbatches pass other stages. One of the
/// operations in a passage takes at least the pace of the passage. In the chains, this operation is at the end of the
/// passage, on a device of its own. There, the operation delays all microbatches as it does at its true place.
class rank_chains {
public:
    using transfers = std::array<std::optional<transfer_times>, 2>;

    /// `room` is the memory for stashes. `moved` has the least times in which any storage option moves the whole stash.
    /// Contract: as for `rank_load`. Each stage has a gradient.
    rank_chains(const std::array<stage_load, 2>& stages, std::size_t count, const surroundings& around,
                const transfers& moved, std::size_t microbatches, memory_size room)
        : microbatches_{microbatches} {
        add_device();
        auto& on = chains_.devices.front();
        on.limited = !room.is_unlimited();
        on.limit = room.value();
        on.host_limit = std::numeric_limits<double>::infinity();
        add_operations(stages, count, around);
        for (std::size_t s = 0; s < count; ++s)
            hold(s, 2 * count - 1 - s, stages[s], moved[s]);
        for (const auto length : chains_.length)
            chains_.time_slack += chain_system::relative_time_slack * static_cast<double>(microbatches) * length;
    }

    /// Whether propagation doesn't refute that the rank does its work within the objective.
    [[nodiscard]] bool has_time(duration objective, stop_check stop) const {
        return !is_refuted(chains_, around_, objective.value(), stop);
    }

private:
    void add_device() {
        chains_.devices.emplace_back();
        around_.push_back({});
    }
    /// Adds the forwards and gradients, in the order in which a microbatch passes them.
    void add_operations(const std::array<stage_load, 2>& stages, std::size_t count, const surroundings& around) {
        const auto& first = stages.front();
        const auto& last = stages[count - 1];
        pass({}, around.before.forward);
        around_.back()[0] = std::max(first.before - around.before.forward, duration{}).value();
        for (std::size_t s = 0; s < count; ++s) {
            if (s > 0) pass(around.there, around.between.forward);
            add_to_rank(stages[s].forward);
        }
        const auto beyond = last.lifetime - last.forward - last.gradient;
        pass(beyond - around.after.gradient, around.after.forward);
        pass(around.after.gradient, around.after.gradient);
        for (auto s = count; s-- > 0;) {
            add_to_rank(stages[s].gradient);
            if (s > 0) pass(around.back, around.between.gradient);
        }
        pass(around.before.gradient, around.before.gradient);
        around_.back()[1] = std::max(first.after - around.before.gradient, duration{}).value();
    }
    /// Adds a passage that takes at least `time`.
    void pass(duration time, duration pace) {
        add_device();
        connect_next(chains_.add(rank{chains_.devices.size() - 1}, pace, microbatches_),
                     std::max(time - pace, duration{}));
    }
    void add_to_rank(duration length) {
        auto& on = chains_.devices.front();
        const auto place = on.chains.size();
        connect_next(chains_.add(rank{0}, length, microbatches_), {});
        for (std::size_t earlier = 0; earlier < place; ++earlier)
            on.orders.emplace_back(place, earlier);
    }
    /// Lets the newest chain follow the previous one.
    void connect_next(std::size_t chain, duration lag) {
        if (chain > 0) chains_.connect(chain - 1, chain, lag.value());
    }
    /// Adds the weight gradients and the memory of a stage, whose forwards and gradients have these places on the rank.
    void hold(std::size_t forward, std::size_t gradient, const stage_load& of,
              const std::optional<transfer_times>& moved) {
        chain_system::held_stage held{forward, gradient};
        held.activation = of.stash.value();
        if (of.weight > duration{}) {
            held.kept = std::min(of.stash, of.weight_stash).value();
            held.weight = chains_.devices.front().chains.size();
            const auto weight = chains_.add(rank{0}, of.weight, microbatches_);
            chains_.connect(chains_.devices.front().chains[gradient], weight, 0.0);
            for (std::size_t earlier = 0; earlier <= gradient; ++earlier)
                chains_.devices.front().orders.emplace_back(held.weight, earlier);
        }
        auto& on = chains_.devices.front();
        held.offloads = moved.has_value();
        if (moved) {
            held.offload = moved->offload.value();
            held.reload = moved->reload.value();
            on.offloads = on.offloads || held.activation > 0.0;
        }
        on.stages.push_back(held);
    }

    std::size_t microbatches_;
    chain_system chains_{};
    /// The least times before the first start and after the last end on each device.
    std::vector<std::array<double, 2>> around_{};
};

} // namespace optpipe::detail
