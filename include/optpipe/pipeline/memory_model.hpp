#pragma once

#include "optpipe/core/container.hpp"
#include "optpipe/core/contract.hpp"
#include "optpipe/pipeline/costs.hpp"
#include "optpipe/pipeline/graph.hpp"

#include <concepts>
#include <cstddef>
#include <utility>

namespace optpipe {

template <class M> concept has_costs = requires(const M& model, stage s, std::size_t stages) {
    { model.costs(s, stages) } -> std::same_as<stage_costs>;
};

/// Describes the costs of one microbatch on every stage: durations, stashes and transfers.
///
/// Semantics: `costs(s, S)` returns the costs of stage s of S stages. Durations are above 0, and sizes aren't negative.
/// Equal arguments give equal costs.
template <class M> concept memory_model = std::copyable<M> && has_costs<M>;

/// Fails to compile, naming the requirement that the type doesn't meet.
template <class M> consteval bool check_memory_model() {
    static_assert(std::copyable<M>, "memory model: must be copyable");
    static_assert(has_costs<M>, "memory model: needs `stage_costs costs(stage, std::size_t stages) const`");
    return memory_model<M>;
}

/// The costs of every stage of a graph.
template <class Model, pipeline_graph Graph>
[[nodiscard]] constexpr per_stage<stage_costs, Graph::stage_extent> costs_of(const Model& model, const Graph& g) {
    static_assert(check_memory_model<Model>());
    per_stage<stage_costs, Graph::stage_extent> costs(g.stages());
    for (const stage s : g.all_stages())
        costs[s] = model.costs(s, g.stages());
    return costs;
}

/// A memory model with the same costs for every stage.
struct uniform_memory {
    stage_costs each{};
    [[nodiscard]] constexpr stage_costs costs(stage, std::size_t) const { return each; }
};

/// The costs of the papers' unit problems. F, I and W take one unit of time each. A stash has size 1. W still needs the
/// share `weight_share` of the stash.
struct unit_memory {
    double weight_share = 0.5;
    [[nodiscard]] constexpr stage_costs costs(stage, std::size_t) const {
        return {duration{1}, duration{1}, duration{1}, memory_size{1}, memory_size{weight_share}, {}};
    }
};

/// Measured or guessed costs, listed stage by stage.
template <auto Stages> struct basic_memory_per_stage {
    per_stage<stage_costs, Stages> each{};
    [[nodiscard]] constexpr stage_costs costs(stage s, std::size_t stages) const {
        OPTPIPE_EXPECT(each.size() == stages, "memory_per_stage: one entry per stage");
        return each[s];
    }
};
template <std::size_t Stages = dynamic> using memory_per_stage = basic_memory_per_stage<named_extent<Stages>()>;

static_assert(memory_model<uniform_memory> && memory_model<unit_memory> && memory_model<memory_per_stage<>> &&
              memory_model<memory_per_stage<4>>);

} // namespace optpipe
