#pragma once

#include "optpipe/core/tolerance.hpp"
#include "optpipe/pipeline/problem.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <vector>

namespace optpipe::detail {

/// A problem as chains of operations of one kind. There is one chain per stage and kind: F, I and W (or F and B if the
/// backward may not be split). Each has one operation per microbatch, in the order in which they run.
///
/// Every valid schedule satisfies these constraints. The k-th forward of a stage can't start before k forwards of the
/// previous stage have ended; the k-th gradient can't start before k forwards of its stage and k gradients of the next
/// stage have ended, whatever their microbatches. If splitting is allowed, a full backward is an I followed at once by
/// a W that holds at most the activation. So an objective refuted for chains is refuted for schedules.
struct chain_system {
    static constexpr std::size_t none = static_cast<std::size_t>(-1);

    /// The operation of the same number in the other chain must have ended `lag` before.
    struct link {
        std::size_t chain = 0;
        double lag = 0.0;
    };
    /// The chains of one stage, numbered within its rank.
    struct held_stage {
        std::size_t forward = 0;
        std::size_t gradient = 0;
        std::size_t weight = none;
        double activation = 0.0;
        /// Memory held from the end of the gradient to the end of the weight gradient.
        double kept = 0.0;
        bool offloads = false;
        double offload = 0.0;
        double reload = 0.0;
    };
    struct device {
        std::vector<std::size_t> chains{};
        std::vector<held_stage> stages{};
        double limit = 0.0;
        double host_limit = 0.0;
        bool limited = false;
        bool offloads = false;
    };

    std::size_t count = 0;
    bool span = false;
    /// Slack for comparisons of memory, and slack for comparisons of computed times.
    double memory_slack = 0.0;
    double time_slack = 0.0;
    std::vector<double> length{};
    std::vector<std::size_t> rank_of{};
    /// Position of a chain among those of its rank.
    std::vector<std::size_t> place{};
    /// Predecessors ([0]) and successors ([1]) of each chain.
    std::array<std::vector<std::vector<link>>, 2> links{};
    std::vector<device> devices{};

    template <pipeline_graph Graph> static chain_system of(const basic_problem<Graph>& p);

private:
    void connect(std::size_t from, std::size_t to, double lag) {
        links[0][to].push_back({from, lag});
        links[1][from].push_back({to, lag});
    }
    std::size_t add(rank r, duration each) {
        const std::size_t chain = length.size();
        length.push_back(each.value());
        rank_of.push_back(r.position());
        place.push_back(devices[r.position()].chains.size());
        devices[r.position()].chains.push_back(chain);
        return chain;
    }
};

template <pipeline_graph Graph> chain_system chain_system::of(const basic_problem<Graph>& p) {
    chain_system c;
    c.count = p.graph.microbatches();
    c.span = p.objective == objective_kind::span;
    c.memory_slack = tolerance{}.at(p.memory_scale()).value();
    constexpr double rounding = 1e-11;
    c.time_slack = rounding * p.serial_time().value();
    c.devices.resize(p.graph.ranks());
    const std::size_t kinds = p.split_backward ? 3 : 2;
    for (auto& side : c.links)
        side.resize(kinds * p.graph.stages());
    for (const stage s : p.graph.all_stages()) {
        const rank r = p.rank_of(s);
        const auto& costs = p.costs[s];
        const std::size_t forward = c.add(r, costs.forward);
        const std::size_t gradient = c.add(r, p.gradient_time(s));
        if (p.split_backward) c.connect(gradient, c.add(r, costs.backward_weight), 0.0);
        if (p.is_last(s)) c.connect(forward, gradient, 0.0);
        if (!p.is_first(s)) {
            c.connect(forward - kinds, forward, p.hop(s.previous(), s).value());
            c.connect(gradient, gradient - kinds, p.hop(s, s.previous()).value());
        }
        held_stage held{c.place[forward], c.place[gradient]};
        held.activation = costs.activation.value();
        if (p.split_backward) {
            held.weight = held.gradient + 1;
            held.kept = std::min(costs.activation, costs.weight_stash).value();
        }
        if (const auto transfer = stash_transfer(p, s)) {
            held.offloads = true;
            held.offload = transfer->offload.value();
            held.reload = transfer->reload.value();
        }
        auto& on = c.devices[r.position()];
        on.offloads = on.offloads || (held.offloads && held.activation > 0.0);
        on.stages.push_back(held);
    }
    for (const rank r : p.graph.all_ranks()) {
        auto& on = c.devices[r.position()];
        on.limited = !p.memory_limit[r].is_unlimited();
        on.limit = p.memory_limit[r].value() + c.memory_slack;
        on.host_limit = p.host_memory_limit[r].value() + c.memory_slack;
    }
    return c;
}

} // namespace optpipe::detail
