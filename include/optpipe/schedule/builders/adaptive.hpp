#pragma once

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <optional>
#include <string_view>
#include <utility>

#include "optpipe/pipeline/least_memory.hpp"
#include "optpipe/pipeline/offload_policy.hpp"
#include "optpipe/schedule/builder.hpp"
#include "optpipe/schedule/builders/gpipe.hpp"
#include "optpipe/schedule/builders/one_forward_one_backward.hpp"
#include "optpipe/schedule/dispatch.hpp"
#include "optpipe/schedule/evaluate.hpp"

namespace optpipe {

/// One microbatch after the other, each stash that must leave the device leaving at once. Valid whenever any schedule is.
template <pipeline_graph Graph>
[[nodiscard]] constexpr basic_order<Graph> one_at_a_time(const basic_problem<Graph>& p) {
    per_stage<unsigned char, Graph::stage_extent> leaves(p.graph.stages());
    for (const rank r : p.graph.all_ranks())
        for (const stage s : least_memory(p, r).offloaded) leaves[s] = 1;
    basic_order<Graph> result{p.graph, {}};
    auto& operations = result.operations;
    for (const microbatch m : p.graph.all_microbatches()) {
        for (const stage s : p.graph.all_stages()) {
            operations.push_back(forward(s, m));
            if (leaves[s]) operations.push_back(offload_of(s, m));
        }
        for (std::size_t i = p.graph.stages(); i-- > 0;) {
            const stage s{i};
            const bool split = p.split_backward && p.costs[s].weight_stash <= p.costs[s].activation;
            if (leaves[s]) operations.push_back(reload_of(s, m));
            operations.push_back(split ? backward_input(s, m) : backward(s, m));
            if (split) operations.push_back(backward_weight(s, m));
        }
    }
    return result;
}

namespace detail {

/// Keeps the best order it is shown.
template <pipeline_graph Graph>
class best_order {
public:
    constexpr explicit best_order(const basic_problem<Graph>& p) : p_{&p} {}

    /// Whether it is better than all before.
    constexpr bool offer(basic_order<Graph> candidate) {
        const auto timed = time_order(*p_, candidate);
        if (!timed) return false;
        const auto value = objective_of(*p_, *timed);
        if (best_ && !(value < value_)) return false;
        best_ = std::move(candidate);
        value_ = value;
        return true;
    }
    [[nodiscard]] constexpr bool found() const { return best_.has_value(); }
    [[nodiscard]] constexpr duration value() const { return value_; }
    [[nodiscard]] constexpr basic_order<Graph> take() && { return *std::move(best_); }

private:
    const basic_problem<Graph>* p_;
    std::optional<basic_order<Graph>> best_{};
    duration value_ = duration::unlimited();
};

}  // namespace detail

/// A constructive planner for any valid problem: unequal costs, a limit per rank, any placement, offloading over shared
/// links. Plays the step forward (`dispatcher`) and searches its knobs one after the other: how deep the warm-up is, where
/// weight gradients go, and how much is offloaded, longest lifespan first, by how many stashes fit. The number of
/// trials follows from the size of the problem, not from a clock.
///
/// Has a schedule whenever one microbatch at a time fits (`fits_one_at_a_time`), and is never worse than 1F1B or GPipe
/// where they fit. `Policy` says which stages may or must travel.
template <offload_policy Policy = offload::solver_decides>
struct adaptive_builder {
    static constexpr std::string_view name = "adaptive";

    Policy policy{};
    /// Dispatcher work to spend on the search; a first few trials are always made.
    std::size_t effort = 25'000'000;

    template <pipeline_graph Graph>
    [[nodiscard]] constexpr outcome<basic_order<Graph>> operator()(const basic_problem<Graph>& p) const {
        return (*this)(p, [] { return false; });
    }
    /// `stop()` is asked between trials; the best so far is returned when it says so.
    template <pipeline_graph Graph, std::predicate Stop>
    [[nodiscard]] constexpr outcome<basic_order<Graph>> operator()(const basic_problem<Graph>& p, Stop stop) const {
        const auto allowed = restrict_offloading(p, policy);
        if (const auto why = lacking(allowed, &least_memory_result::lower_bound,
                                     "no schedule exists, not even with one microbatch at a time"))
            return *why;
        detail::best_order<Graph> best{allowed};
        best.offer(gpipe(p.graph));
        if (one_stage_per_rank(p.graph)) best.offer(one_forward_one_backward(p.graph));
        search(allowed, best, stop);
        if (!best.found()) best.offer(one_at_a_time(allowed));
        if (best.found()) return std::move(best).take();
        return *lacking(allowed, &least_memory_result::needed, "found no schedule, though none is proven impossible");
    }

private:
    /// The rank that lacks most of what `need` says; no refusal where every rank has it.
    template <pipeline_graph Graph>
    static constexpr std::optional<refusal> lacking(const basic_problem<Graph>& p, memory_size least_memory_result::*need,
                                                    std::string_view sentence) {
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

    template <pipeline_graph Graph, class Stop>
    constexpr void search(const basic_problem<Graph>& p, detail::best_order<Graph>& best, Stop& stop) const {
        const auto facts = make_dispatch_facts(p, policy);
        std::size_t spent = 0;
        std::size_t trials = 0;
        const auto exhausted = [&] { return stop() || (spent >= effort && trials >= 8); };
        const auto trial = [&](const dispatch_options& options) {
            if (exhausted()) return false;
            dispatcher<Graph> run{p, facts, options};
            const bool better = best.offer({p.graph, run.run()});
            spent += run.work();
            ++trials;
            return better;
        };
        const bool offloads = std::any_of(facts.decision.begin(), facts.decision.end(),
                                          [](offload_decision d) { return d != offload_decision::forbid; });
        dispatch_options chosen;
        trial(chosen);
        if (offloads) {
            chosen.staging = 1.0;
            trial(chosen);
        }
        for (bool better = true; better && !exhausted();) {
            better = false;
            const auto knob = [&](auto dispatch_options::*member, auto... values) {
                const auto attempt = [&](auto value) {
                    auto options = chosen;
                    options.*member = value;
                    if (options == chosen || !trial(options)) return;
                    chosen = options;
                    better = true;
                };
                (attempt(values), ...);
            };
            knob(&dispatch_options::depth, 1.0, 1.15, 1.3, 1.5, 1.75, 2.0, 2.5, 3.0, 1e9);
            if (offloads) {
                knob(&dispatch_options::staging, -1.0, 0.0, 1.0, 2.0, 3.0, 4.0, 6.0);
                knob(&dispatch_options::offload_share, 0.0, 0.25, 0.5, 0.75, 1.0);
                knob(&dispatch_options::lead, 0.0, 0.5, 1.0, 2.0, 4.0, 8.0);
            }
            knob(&dispatch_options::weight_fit, 0.0, 0.25, 0.5, 0.75, 1.0);
            if (p.graph.stages() != p.graph.ranks())
                knob(&dispatch_options::forwards, forward_preference::deepest_stage, forward_preference::shallowest_stage,
                     forward_preference::oldest_microbatch);
            knob(&dispatch_options::forward_wait, 0.0, 0.5, 1.0);
            knob(&dispatch_options::memory_share, 1.0, 0.9, 0.8, 0.65, 0.5);
        }
    }
};
inline constexpr adaptive_builder<> adaptive{};

static_assert(schedule_builder<adaptive_builder<>> && schedule_builder<adaptive_builder<>, graph<2, 2>>);

}  // namespace optpipe
