#pragma once

#include "optpipe/pipeline/least_memory.hpp"
#include "optpipe/pipeline/offload_policy.hpp"
#include "optpipe/schedule/bounds/structural_bounds.hpp"
#include "optpipe/schedule/builders/builder.hpp"
#include "optpipe/schedule/builders/builder_parameters.hpp"
#include "optpipe/schedule/builders/gpipe.hpp"
#include "optpipe/schedule/builders/one_forward_one_backward.hpp"
#include "optpipe/schedule/construct/dispatch_search.hpp"

#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <utility>

namespace optpipe {

/// The serial order, one microbatch after the other; stashes that must be offloaded are, at once, and each stage uses
/// the storage option that takes least beside the others. Valid whenever any schedule is.
template <pipeline_graph Graph>
[[nodiscard]] constexpr basic_order<Graph> one_at_a_time(const basic_problem<Graph>& p) {
    per_stage<std::size_t, Graph::stage_extent> option(p.graph.stages());
    for (const rank r : p.graph.all_ranks()) {
        const auto least = least_memory(p, r);
        for (const stage s : least.offloaded)
            option[s] = 1;
        auto next = least.options.begin();
        for (const stage s : p.graph.all_stages())
            if (p.rank_of(s) == r && next != least.options.end()) option[s] = *next++;
    }
    basic_order<Graph> result{p.graph, {}};
    const auto put = [&](operation op) {
        if (!p.storage[op.stage].empty()) op.storage = static_cast<storage_index>(option[op.stage]);
        result.operations.push_back(op);
    };
    for (const microbatch m : p.graph.all_microbatches()) {
        for (const stage s : p.graph.all_stages()) {
            put(forward(s, m));
            if (p.storage_of(s, option[s]).offloads()) put(offload_of(s, m));
        }
        for (std::size_t i = p.graph.stages(); i-- > 0;) {
            const stage s{i};
            const auto stored = p.storage_of(s, option[s]);
            const bool split = p.split_backward && p.costs[s].weight_stash <= stored.restored(p.costs[s]);
            if (stored.offloads()) put(reload_of(s, m));
            if (stored.recomputes()) put(recompute_of(s, m));
            put(split ? backward_input(s, m) : backward(s, m));
            if (split) put(backward_weight(s, m));
        }
    }
    return result;
}

/// A constructive planner for any valid problem: unequal costs, a limit per rank, any placement, offloading over shared
/// links. Simulates the step with a `dispatcher` and searches for its best parameters, then for exceptions to its rules
/// (`dispatch_search`), until a structural bound is met or the effort is spent. The number of trials follows from the
/// size of the problem, not from a clock.
///
/// Has a schedule whenever one microbatch at a time fits (`fits_one_at_a_time`), and is never worse than 1F1B or GPipe
/// where they fit and no offload is required. `Policy` says which stages may or must be offloaded.
template <offload_policy Policy = offload::solver_decides> struct adaptive_builder {
    static constexpr std::string_view name = "adaptive";

    Policy policy{};
    /// The limit of dispatcher work; the first few trials are always made.
    std::size_t effort = 30'000'000;
    std::uint64_t seed = 1;
    [[nodiscard]] static constexpr std::array<builder_parameter<adaptive_builder>, 1> parameters() {
        return {{{"effort", &adaptive_builder::effort}}};
    }

    template <pipeline_graph Graph>
    [[nodiscard]] constexpr outcome<basic_order<Graph>> operator()(const basic_problem<Graph>& p) const {
        return (*this)(p, [] { return false; });
    }
    /// `stop()` is polled; when it is true, the best so far is returned.
    template <pipeline_graph Graph, std::predicate Stop>
    [[nodiscard]] constexpr outcome<basic_order<Graph>> operator()(const basic_problem<Graph>& p, Stop stop) const {
        const auto allowed = restrict_offloading(p, policy);
        if (const auto why = lacking(allowed, &least_memory_result::lower_bound,
                                     "no schedule exists, not even with one microbatch at a time"))
            return *why;
        best_order<Graph> best{allowed};
        const auto proven = (1.0 + 1e-9) * bounds_of(allowed, stop).best();
        const auto facts = make_dispatch_facts(allowed, policy);
        bool may_stay = true;
        for (const auto decision : facts.decision)
            may_stay = may_stay && decision != offload_decision::require;
        if (may_stay) best.offer(gpipe(p.graph));
        if (may_stay && one_stage_per_rank(p.graph)) best.offer(one_forward_one_backward(p.graph));
        const auto halt = [&] { return stop() || best.value() <= proven; };
        dispatch_search<Graph, decltype(halt)>{allowed, facts, best, halt, effort, seed}.run();
        if (!best.found()) best.offer(one_at_a_time(allowed));
        if (best.found()) return std::move(best).take();
        return *lacking(allowed, &least_memory_result::needed, "found no schedule, though none is proven infeasible");
    }

private:
    /// A refusal that names the rank that lacks most of `need`; none if every rank has enough.
    template <pipeline_graph Graph>
    static constexpr std::optional<refusal> lacking(const basic_problem<Graph>& p,
                                                    memory_size least_memory_result::*need, std::string_view sentence) {
        const auto slack = tolerance{}.at(p.memory_scale());
        std::optional<refusal> why;
        for (const rank r : p.graph.all_ranks()) {
            const auto needed = least_memory(p, r).*need;
            if (needed <= p.memory_limit[r] + slack) continue;
            if (why && needed - p.memory_limit[r] <= why->needed - why->limit) continue;
            why.emplace();
            why->reason = refusal_reason::over_memory;
            why->sentence = sentence;
            why->rank = r;
            why->needed = needed;
            why->limit = p.memory_limit[r];
        }
        return why;
    }
};
inline constexpr adaptive_builder<> adaptive{};

static_assert(schedule_builder<adaptive_builder<>> && schedule_builder<adaptive_builder<>, graph<2, 2>>);

} // namespace optpipe
