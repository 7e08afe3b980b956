// Random problems, of sizes and features that the problem files don't cover.
#pragma once

#include <optpipe/core/random.hpp>
#include <optpipe/pipeline/problem.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

namespace bench {

using namespace optpipe;

/// 2 to 16 ranks and up to four times as many microbatches, at least 4; one or two stages per rank, even or uneven,
/// with or without hops, transfers (over own or shared links), storage options and full backwards, in 0.3 to 1 of the
/// memory that 1F1B needs with all stashes kept. Times are multiples of 1/10 of a mean pass.
class random_problem {
public:
    explicit random_problem(std::uint64_t seed) : random_{seed}, seed_{seed} {}

    problem make() {
        const std::size_t ranks = std::size_t{2} << random_.below(4);
        const auto microbatches = std::max<std::size_t>(4, ranks * random_.between(1, 4));
        auto p = random_.chance(75) ? with(graph<dynamic, dynamic>{ranks, microbatches})
                                    : with(graph<dynamic, dynamic, placement::v>{ranks, microbatches});
        p.name = "random-" + std::to_string(seed_) + "-p" + std::to_string(ranks) + "-m" + std::to_string(microbatches);
        return p;
    }

private:
    double tenths(std::size_t low, std::size_t high) { return 0.1 * static_cast<double>(random_.between(low, high)); }

    template <class Graph> problem with(const Graph& g) {
        const bool even = random_.chance(40);
        const bool offloads = random_.chance(60);
        const bool options = random_.chance(40);
        const auto first = costs(offloads);
        per_stage<stage_costs> all(g.stages(), first);
        if (!even)
            for (auto& c : all)
                c = costs(offloads);
        problem p{to_any_graph(g), std::move(all)};
        if (random_.chance(50)) p.p2p = hop_times<>{duration{tenths(1, 5)}};
        if (random_.chance(10)) p.split_backward = false;
        if (options)
            for (const stage s : p.graph.all_stages())
                add_options(p, s);
        limit(p);
        p.transfer.engines = random_.chance(50) ? 2 : 1;
        if (random_.chance(30))
            for (std::uint32_t r = 1; r < p.graph.ranks(); r += 2)
                p.transfer.share_link(rank{r - 1}, rank{r});
        return p;
    }
    stage_costs costs(bool offloads) {
        stage_costs c;
        c.forward = duration{tenths(5, 15)};
        c.backward_input = duration{tenths(5, 15)};
        c.backward_weight = duration{tenths(3, 12)};
        c.activation = memory_size{tenths(8, 12)};
        c.weight_stash = tenths(2, 9) * c.activation;
        if (offloads) {
            const duration each{tenths(3, 20)};
            c.transfer = transfer_times{each, each};
        }
        return c;
    }
    /// Adds to keep and, if possible, offload: recompute everything, and recompute a part inside the backward.
    void add_options(problem& p, stage s) {
        const auto& c = p.costs[s];
        auto list = p.storage[s];
        list.resize(1);
        list.push_back({.name = "full", .held = tenths(1, 2) * c.activation, .recompute = c.forward});
        list.push_back(
            {.name = "part", .held = tenths(5, 8) * c.activation, .backward_extra = tenths(1, 4) * c.forward});
        if (p.storage_options(s) > 1) list.push_back(p.storage_of(s, 1));
        p.set_storage(s, list);
    }
    void limit(problem& p) {
        const auto share = tenths(3, 10);
        for (const rank r : p.graph.all_ranks()) {
            memory_size most{};
            for (const stage s : p.graph.all_stages())
                if (p.rank_of(s) == r) most += p.costs[s].activation;
            p.memory_limit[r] = std::max(share * static_cast<double>(p.graph.ranks()), 2.0) * most;
        }
    }

    random_numbers random_;
    std::uint64_t seed_;
};

} // namespace bench
