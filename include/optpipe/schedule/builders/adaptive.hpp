#pragma once

#include "optpipe/core/stop_check.hpp"
#include "optpipe/core/tolerance.hpp"
#include "optpipe/pipeline/least_memory.hpp"
#include "optpipe/pipeline/make_problem.hpp"
#include "optpipe/pipeline/offload_policy.hpp"
#include "optpipe/schedule/bounds/structural_bounds.hpp"
#include "optpipe/schedule/builders/adapipe.hpp"
#include "optpipe/schedule/builders/builder.hpp"
#include "optpipe/schedule/builders/builder_parameters.hpp"
#include "optpipe/schedule/builders/gpipe.hpp"
#include "optpipe/schedule/builders/one_forward_one_backward.hpp"
#include "optpipe/schedule/construct/serial_order.hpp"
#include "optpipe/schedule/construct/uniform_storage.hpp"
#include "optpipe/schedule/construct/within_memory.hpp"
#include "optpipe/schedule/dispatch/dispatch_search.hpp"
#include "optpipe/schedule/dispatch/graph_dispatch_search.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <utility>

namespace optpipe {

/// A constructive planner for any valid problem. The planner supports unequal costs, a memory limit per rank, any
/// placement, and offloading over shared links. The first order has as many microbatches in flight as fit in memory
/// (`order_within_memory`). A search then simulates the step with a `dispatcher`, and improves its parameters and
/// exceptions (`dispatch_search`). The search ends at a structural bound, or when the effort is used up. The number of
/// trials follows from the size of the problem, not from a clock.
///
/// The planner finds a schedule whenever one microbatch at a time fits (`fits_one_at_a_time`). Unless stopped, the
/// schedule is at least as good as 1F1B and GPipe, if they fit and no offload is required. `Policy` says which stages
/// may or must offload whole stashes (`decisions_of`). With other storage options, the search also tries AdaPipe's
/// schedule. The search also tries one option for all stages and microbatches (`uniform_problem`). `Policy` applies
/// only to keeping and offloading whole stashes. `restrict_storage` restricts other options.
template <storage_policy Policy = offload::solver_decides> struct adaptive_builder {
    static constexpr std::string_view name = "adaptive";
    static constexpr bool any_graph = true;

    Policy policy{};
    /// Limit on the dispatcher's work. The first few trials are made even if they exceed the limit. Not tuned.
    std::size_t effort = 30'000'000;
    std::uint64_t seed = 1;
    /// A known lower bound on the objective. If no bound is known (0), the structural bounds are computed.
    duration bound{};
    [[nodiscard]] static constexpr std::array<builder_parameter<adaptive_builder>, 1> parameters() {
        return {{{"effort", &adaptive_builder::effort}}};
    }

    /// `stop` is polled. After `stop` has returned true, the best order found by then is returned.
    template <pipeline_graph Graph>
    [[nodiscard]] constexpr outcome<basic_order<Graph>> operator()(const basic_problem<Graph>& p,
                                                                   stop_check stop = {}) const {
        if (!is_plain(p)) return for_any_graph(p, stop);
        const auto decisions = decisions_of(p, policy);
        const auto allowed = without_forbidden(p, decisions);
        const auto least = least_memory(allowed);
        if (const auto why = lacking(allowed, least, &least_memory_result::lower_bound,
                                     times_are_distinct(allowed) ? infeasible : found_none))
            return *why;
        best_order<Graph> best{allowed};
        const bool may_stay = std::none_of(decisions.begin(), decisions.end(),
                                           [](offload_decision d) { return d == offload_decision::require; });
        if (may_stay) best.offer(order_within_memory(allowed, least));
        if (!is_described_by_costs(p))
            search_by_option(allowed, may_stay, stop, best);
        else if (!stop())
            search(allowed, may_stay, stop, best);
        if (!best.found()) best.offer(one_at_a_time(allowed, least));
        if (best.found()) return std::move(best).take();
        return *lacking(allowed, least, &least_memory_result::needed, found_none);
    }

private:
    static constexpr std::string_view infeasible = "no schedule exists, not even with one microbatch at a time";
    static constexpr std::string_view found_none = "found no schedule, though none is proven infeasible";

    /// Number of trials made even without effort left, as a schedule is needed.
    static constexpr std::size_t least_trials = 8;

    /// Plans a problem that isn't plain, without regard to `Policy`.
    template <pipeline_graph Graph>
    outcome<basic_order<Graph>> for_any_graph(const basic_problem<Graph>& p, stop_check stop) const {
        constexpr double rounding = 1e-9;
        const auto known = (1.0 + rounding) * (bound > duration{} ? bound : graph_bound(detail::any_problem(p)));
        best_order<Graph> best{p};
        const stop_when is_proven{[&] { return stop() || best.value() <= known; }};
        constexpr std::size_t operations_per_cell = 4; // F, I, W, and in some cells a recomputation
        const auto trials = effort / (dispatcher<Graph>::visits_per_start * operations_per_cell * p.graph.cells());
        graph_dispatch_search<Graph>{p, best, stop_check{is_proven}, std::max(trials, least_trials), seed}.run();
        if (best.found()) return std::move(best).take();
        const auto one = simulate(p, one_at_a_time(p));
        return one ? was_stopped() : one.why();
    }

    /// The problem `p` without whole offloads on stages where the policy forbids offloading.
    template <pipeline_graph Graph>
    static constexpr basic_problem<Graph>
    without_forbidden(basic_problem<Graph> p, const per_stage<offload_decision, Graph::stage_extent>& decisions) {
        for (const stage s : p.graph.all_stages()) {
            if (decisions[s] != offload_decision::forbid) continue;
            storage_list<false> left;
            for (const auto& option : p.storage[s])
                if (!offloads_all(option)) left.push_back(option);
            if (left.empty()) left.push_back(keep_stash(p.costs[s]));
            p.set_storage(s, left);
        }
        return p;
    }
    template <pipeline_graph Graph>
    constexpr void search(const basic_problem<Graph>& p, bool may_stay, stop_check stop,
                          best_order<Graph>& best) const {
        const auto known = bound > duration{} ? bound : bounds_of(p, stop).best();
        constexpr double rounding = 1e-9;
        const auto proven = (1.0 + rounding) * known;
        const stop_when is_proven{[&] { return stop() || best.value() <= proven; }};
        const stop_check halt{is_proven};
        if (may_stay && !halt()) best.offer(gpipe(p.graph));
        if (may_stay && !halt() && one_stage_per_rank(p.graph)) best.offer(one_forward_one_backward(p.graph));
        if (halt()) return;
        const auto facts = make_dispatch_facts(p, policy);
        dispatch_search<Graph>{p, facts, best, halt, effort, seed}.run();
    }
    /// Searches with each storage option in turn. The searches share the effort.
    template <pipeline_graph Graph>
    constexpr void search_by_option(const basic_problem<Graph>& p, bool may_stay, stop_check stop,
                                    best_order<Graph>& best) const {
        if (may_stay)
            if (const auto made = adapipe(p)) best.offer(*made);
        const auto choices = uniform_choices(p);
        auto each = *this;
        each.effort = effort / std::max<std::size_t>(choices.size(), 1);
        each.bound = {};
        for (const auto& choice : choices) {
            if (stop()) return;
            if (const auto made = each(uniform_problem(p, choice.options), stop))
                best.offer(with_storage(p, choice.options, *made));
        }
    }
    /// Whether `validate` can distinguish the start and end times of all operations that hold memory. If a start and an
    /// end coincide, an order may count as valid although it exceeds the memory.
    template <pipeline_graph Graph> static constexpr bool times_are_distinct(const basic_problem<Graph>& p) {
        const auto slack = tolerance{}.at(p.serial_time());
        return std::all_of(p.costs.begin(), p.costs.end(),
                           [&](const stage_costs& c) { return std::min(c.forward, c.backward_input) > slack; });
    }
    /// A refusal that names a rank with too little host memory or, if there is none, the rank furthest below `need`.
    /// Empty if every rank has enough memory.
    template <pipeline_graph Graph>
    static constexpr std::optional<refusal> lacking(const basic_problem<Graph>& p, const least_memory_by_rank& least,
                                                    memory_size least_memory_result::*need, std::string_view sentence) {
        const auto slack = tolerance{}.at(p.memory_scale());
        std::optional<refusal> why;
        for (const rank r : p.graph.all_ranks()) {
            const auto needed = least[r].*need;
            if (needed.is_unlimited()) {
                why.emplace();
                why->reason = refusal_reason::over_host_memory;
                why->sentence = sentence;
                why->rank = r;
                why->needed = least_host_memory(p, r);
                why->limit = p.host_memory_limit[r];
                return why;
            }
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

} // namespace optpipe
