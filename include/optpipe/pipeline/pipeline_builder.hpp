#pragma once

#include "optpipe/core/compiled.hpp"
#include "optpipe/core/contract.hpp"
#include "optpipe/core/index.hpp"
#include "optpipe/core/quantity.hpp"
#include "optpipe/pipeline/costs.hpp"
#include "optpipe/pipeline/edges.hpp"
#include "optpipe/pipeline/graph.hpp"
#include "optpipe/pipeline/memory_model.hpp"
#include "optpipe/pipeline/placement.hpp"
#include "optpipe/pipeline/problem.hpp"
#include "optpipe/pipeline/storage.hpp"
#include "optpipe/pipeline/storage_policy.hpp"

#include <cstddef>
#include <initializer_list>
#include <optional>
#include <string_view>
#include <vector>

namespace optpipe {

/// An input of a stage: the earlier stage that sends it, and the size and memory of the edge (`edge`).
struct stage_input {
    stage from{};
    double size = 1.0;
    memory_size held{};
    // Implicit: a list of stages converts to a list of inputs.
    constexpr stage_input(stage of, double times = 1.0, memory_size waiting = {})
        : from{of}, size{times}, held{waiting} {}
};

/// Describes a pipeline stage by stage. A stage is added after the stages that feed it:
///
///     pipeline_builder model;
///     const auto vision = model.add(rank{0}, encoder);
///     const auto text = model.add(rank{1}, embedding);
///     const auto trunk = model.add(rank{1}, layers, {vision, text});
///     model.add(rank{2}, layers, {trunk});
///     problem p = model.build(16);
///
/// Stages are numbered in the order in which they are added. The remaining fields of the problem are public, and can be
/// set afterwards.
class pipeline_builder {
public:
    using inputs = std::initializer_list<stage_input>;

    /// Adds a stage to rank `on`. Contract: the stages in `fed_by` have been added before, and no stage is named twice.
    stage add(rank on, const stage_costs& costs, inputs fed_by = {});
    /// Adds a stage with the storage options `options`. Transfer times in the costs are ignored.
    stage add(rank on, const stage_costs& costs, inputs fed_by, storage_list<false> options);
    /// Adds a chain of `ranks.size()` stages with the costs of a memory model. Stage i of the chain is on rank
    /// `ranks[i]`. The stages in `fed_by` feed the first stage of the chain. Returns the last stage. Uses the members
    /// `p2p()`, `time_unit` and `memory_unit` of a model that has them. The stages get all of the model's storage
    /// options. `restrict_storage` can remove options later.
    template <class Model> stage add_chain(const std::vector<rank>& ranks, const Model& model, inputs fed_by = {}) {
        static_assert(check_memory_model<Model>() && check_storage_of<Model>());
        OPTPIPE_EXPECT(!ranks.empty(), "pipeline_builder: a chain has at least one stage");
        use_units_of(model);
        stage last = add_stage_of(model, stage{0}, ranks, fed_by);
        for (std::size_t i = 1; i < ranks.size(); ++i)
            last = add_stage_of(model, stage{i}, ranks, {last});
        return last;
    }
    /// Adds one shard of a layer to each of `ranks`. The shards form a group with the delay `delay`. The stages in
    /// `fed_by` feed every shard. Returns the shards.
    std::vector<stage> add_shards(const std::vector<rank>& ranks, const stage_costs& each, inputs fed_by,
                                  duration delay = {});
    /// Makes these stages a group. The gradients of a microbatch start no earlier than `delay` after its last F in the
    /// group.
    void group(std::vector<stage> stages, duration delay = {});

    /// The problem of a step with `microbatches` microbatches. The problem has all ranks up to the highest one that
    /// holds a stage. Contract: there are no more ranks than stages.
    [[nodiscard]] problem build(std::size_t microbatches) const;

private:
    struct described_stage {
        rank on;
        stage_costs costs;
        storage_list<false> storage;
    };
    struct described_group {
        std::vector<stage> stages;
        duration delay;
    };

    template <class Model> void use_units_of(const Model& model) {
        if constexpr (requires { model.p2p(); }) p2p_ = model.p2p();
        if constexpr (requires { Model::time_unit; }) time_unit_ = Model::time_unit;
        if constexpr (requires { Model::memory_unit; }) memory_unit_ = Model::memory_unit;
    }
    template <class Model>
    stage add_stage_of(const Model& model, stage of_chain, const std::vector<rank>& ranks, inputs fed_by) {
        const auto costs = model.costs(of_chain, ranks.size());
        if constexpr (has_storage<Model>)
            return add(ranks[of_chain.position()], costs, fed_by, model.storage(of_chain, ranks.size()));
        else
            return add(ranks[of_chain.position()], costs, fed_by);
    }

    std::vector<described_stage> stages_{};
    std::vector<edge> edges_{};
    std::vector<described_group> groups_{};
    duration p2p_{};
    std::string_view time_unit_{};
    std::string_view memory_unit_{};
};

} // namespace optpipe

#if OPTPIPE_DEFINES(pipeline)
#include <algorithm>
#include <utility>

namespace optpipe {

OPTPIPE_INLINE stage pipeline_builder::add(rank on, const stage_costs& costs, inputs fed_by) {
    return add(on, costs, fed_by, described_storage(costs));
}

OPTPIPE_INLINE stage pipeline_builder::add(rank on, const stage_costs& costs, inputs fed_by,
                                           storage_list<false> options) {
    const stage added{stages_.size()};
    for (const stage_input& each : fed_by) {
        OPTPIPE_EXPECT(each.from < added, "pipeline_builder: a stage is fed by one that isn't there yet");
        const auto is_same = [&](const stage_input& other) { return other.from == each.from; };
        OPTPIPE_EXPECT(std::count_if(fed_by.begin(), fed_by.end(), is_same) == 1,
                       "pipeline_builder: a stage is fed by another one twice");
    }
    for (const stage_input& each : fed_by)
        edges_.push_back({each.from, added, each.size, each.held});
    stages_.push_back({on, costs, std::move(options)});
    return added;
}

OPTPIPE_INLINE std::vector<stage> pipeline_builder::add_shards(const std::vector<rank>& ranks, const stage_costs& each,
                                                               inputs fed_by, duration delay) {
    std::vector<stage> shards;
    for (const rank on : ranks)
        shards.push_back(add(on, each, fed_by));
    group(shards, delay);
    return shards;
}

OPTPIPE_INLINE void pipeline_builder::group(std::vector<stage> stages, duration delay) {
    groups_.push_back({std::move(stages), delay});
}

OPTPIPE_INLINE problem pipeline_builder::build(std::size_t microbatches) const {
    OPTPIPE_EXPECT(!stages_.empty(), "pipeline_builder: there is no stage");
    std::size_t ranks = 0;
    per_stage<rank> rank_of(stages_.size());
    per_stage<stage_costs> costs(stages_.size());
    for (const stage s : costs.indices()) {
        const auto& each = stages_[s.position()];
        rank_of[s] = each.on;
        costs[s] = each.costs;
        ranks = std::max(ranks, each.on.position() + 1);
    }
    OPTPIPE_EXPECT(ranks <= stages_.size(), "pipeline_builder: a rank holds no stage");
    problem p{any_graph{ranks, microbatches, placement::map<>{rank_of}, edges::any{stages_.size(), edges_}}, costs};
    for (const stage s : costs.indices())
        p.set_stage(s, costs[s], stages_[s.position()].storage);
    for (const auto& [stages, delay] : groups_)
        p.groups.add(stages, delay, stages_.size());
    p.p2p = hop_times<>{p2p_};
    if (!time_unit_.empty()) p.time_unit = time_unit_;
    if (!memory_unit_.empty()) p.memory_unit = memory_unit_;
    return p;
}

} // namespace optpipe
#endif
