#pragma once

#include "optpipe/core/container.hpp"
#include "optpipe/pipeline/least_memory.hpp"
#include "optpipe/pipeline/make_problem.hpp"
#include "optpipe/pipeline/offload_policy.hpp"
#include "optpipe/pipeline/paths.hpp"
#include "optpipe/pipeline/problem.hpp"

#include <algorithm>
#include <cstddef>

namespace optpipe {

/// Facts about a problem that don't change while a dispatcher runs.
template <pipeline_graph Graph> struct dispatch_facts {
    static constexpr std::size_t stages_extent = Graph::stage_extent;
    static constexpr std::size_t ranks_extent = Graph::rank_extent;

    microbatch_paths<stages_extent> paths;
    per_rank<bounded_vector<stage, stages_extent>, ranks_extent> stages;
    /// For each rank, all ranks on its host link, including itself.
    per_rank<bounded_vector<rank, ranks_extent>, ranks_extent> link_mates;
    per_stage<offload_decision, stages_extent> decision;
    /// Position of each stage among the stages of its rank, longest lifespan first.
    per_stage<std::size_t, stages_extent> lifespan_place;
    /// The stages that must offload even a single microbatch, and the host memory that their stashes take per rank.
    per_stage<unsigned char, stages_extent> must_leave;
    per_rank<memory_size, ranks_extent> host_for_must;
    per_rank<memory_size, ranks_extent> least;
    per_rank<memory_size, ranks_extent> largest_stash;
    /// The busiest rank's work per microbatch: a lower bound on the time between microbatches.
    duration cycle{};
    memory_size slack{};
};

template <pipeline_graph Graph, storage_policy Policy>
[[nodiscard]] constexpr dispatch_facts<Graph> make_dispatch_facts(const basic_problem<Graph>& p, const Policy& policy) {
    const auto stages = p.graph.stages();
    const auto ranks = p.graph.ranks();
    using sizes = per_rank<memory_size, Graph::rank_extent>;
    dispatch_facts<Graph> f;
    f.paths = paths_of(p);
    f.stages = stages_by_rank(p.graph);
    f.link_mates = per_rank<bounded_vector<rank, Graph::rank_extent>, Graph::rank_extent>(ranks);
    f.decision = decisions_of(p, policy);
    f.lifespan_place = lifespan_places(p, f.paths);
    f.must_leave = per_stage<unsigned char, Graph::stage_extent>(stages);
    f.host_for_must = sizes(ranks);
    f.least = sizes(ranks);
    f.largest_stash = sizes(ranks);
    f.slack = tolerance{}.at(p.memory_scale());
    f.cycle = p.busiest_work();
    for (const rank r : p.graph.all_ranks()) {
        for (const rank other : p.graph.all_ranks())
            if (p.transfer.link[r] == p.transfer.link[other]) f.link_mates[r].push_back(other);
        const auto least = least_memory(p, r);
        f.least[r] = least.with_options;
        for (std::size_t i = 0; i < f.stages[r].size(); ++i) {
            const stage s = f.stages[r][i];
            f.largest_stash[r] = std::max(f.largest_stash[r], p.costs[s].activation);
            if (!p.storage_of(s, least.options[i]).offloads()) continue;
            f.must_leave[s] = 1;
            f.host_for_must[r] += p.costs[s].activation;
        }
    }
    return f;
}

} // namespace optpipe
