#pragma once

#include "optpipe/core/tolerance.hpp"
#include "optpipe/pipeline/problem.hpp"

#include <array>
#include <cstddef>
#include <utility>
#include <vector>

namespace optpipe::detail {

/// A relaxation of a problem. A chain lists operations of one kind in the order in which they run. A plain problem has
/// one chain per stage and kind. Each chain has one operation per microbatch. The kinds are F, I and W, or F and B if
/// splitting isn't allowed. `chains_of` makes the chains of any problem.
///
/// Every valid schedule satisfies the following constraints. The k-th forward starts after k forwards of the previous
/// stage have ended. The k-th gradient starts after k forwards of its stage and k gradients of the next stage have
/// ended. If splitting is allowed, a B is an I followed at once by a W with at most the activation.
struct chain_system {
    static constexpr std::size_t none = static_cast<std::size_t>(-1);

    /// An operation starts at least `lag` after the end of the operation of `chain` with the same index.
    struct link {
        std::size_t chain = 0;
        double lag = 0.0;
    };
    /// The chains of one stage, by their indices within the rank.
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
    /// Memory held from the start of an operation of `from` to the end of the operation of `to` with the same index.
    /// The two chains may be on different devices. Only amounts count: any operation of `to` may release memory taken
    /// by any operation of `from`.
    struct holding {
        std::size_t from = 0;
        std::size_t to = 0;
        double size = 0.0;
    };
    struct device {
        std::vector<std::size_t> chains{};
        /// Pairs of a later and an earlier chain, by their positions on the rank. Operation k of the later chain runs
        /// after operation k of the earlier chain.
        std::vector<std::pair<std::size_t, std::size_t>> orders{};
        /// Describes the held memory, as `stages` in a plain problem and as `holdings` in any other problem.
        std::vector<held_stage> stages{};
        std::vector<holding> holdings{};
        double limit = 0.0;
        double host_limit = 0.0;
        bool limited = false;
        bool offloads = false;
    };

    /// `count` is the number of operations of each chain. `first` is the index of the chain's first operation among all
    /// operations.
    std::vector<std::size_t> count{};
    std::vector<std::size_t> first{};
    /// The chain of each operation.
    std::vector<std::size_t> chain_of{};
    bool span = false;
    /// Slack for comparisons of memory (`memory_slack`) and for comparisons of computed times (`time_slack`).
    double memory_slack = 0.0;
    double time_slack = 0.0;
    /// `time_slack` as a share of the duration of all operations: more than the rounding errors of a million additions.
    static constexpr double relative_time_slack = 1e-11;
    std::vector<double> length{};
    std::vector<std::size_t> rank_of{};
    /// Position of a chain among those of its rank.
    std::vector<std::size_t> place{};
    /// Links to the predecessors ([0]) and to the successors ([1]) of each chain.
    std::array<std::vector<std::vector<link>>, 2> links{};
    std::vector<device> devices{};

    /// A system with the objective, tolerances and limits of `p`, but without chains.
    template <pipeline_graph Graph> static chain_system without_chains(const basic_problem<Graph>& p);
    void connect(std::size_t from, std::size_t to, double lag) {
        links[0][to].push_back({from, lag});
        links[1][from].push_back({to, lag});
    }
    std::size_t add(rank r, duration each, std::size_t operations) {
        const std::size_t chain = length.size();
        length.push_back(each.value());
        count.push_back(operations);
        first.push_back(chain_of.size());
        chain_of.resize(chain_of.size() + operations, chain);
        for (auto& side : links)
            side.emplace_back();
        rank_of.push_back(r.position());
        place.push_back(devices[r.position()].chains.size());
        devices[r.position()].chains.push_back(chain);
        return chain;
    }
};

template <pipeline_graph Graph> chain_system chain_system::without_chains(const basic_problem<Graph>& p) {
    chain_system c;
    c.span = p.objective == objective_kind::span;
    c.memory_slack = tolerance{}.at(p.memory_scale()).value();
    c.time_slack = chain_system::relative_time_slack * p.serial_time().value();
    c.devices.resize(p.graph.ranks());
    for (const rank r : p.graph.all_ranks()) {
        auto& on = c.devices[r.position()];
        on.limited = !p.memory_limit[r].is_unlimited();
        on.limit = p.memory_limit[r].value() + c.memory_slack;
        on.host_limit = p.host_memory_limit[r].value() + c.memory_slack;
    }
    return c;
}

} // namespace optpipe::detail
