#pragma once

#include "optpipe/core/quantity.hpp"
#include "optpipe/pipeline/paths.hpp"
#include "optpipe/pipeline/problem.hpp"
#include "optpipe/pipeline/sequences.hpp"
#include "optpipe/schedule/builders/builder.hpp"
#include "optpipe/schedule/construct/chain_problem.hpp"
#include "optpipe/schedule/construct/injection.hpp"
#include "optpipe/schedule/operation.hpp"
#include "optpipe/schedule/schedule.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <string_view>
#include <vector>

namespace optpipe {

namespace detail {

/// A step in which each microbatch repeats the operations of the previous one a period later. The period is the time
/// that the busiest rank works on a microbatch with mean costs. In each period, a rank runs its stages' forwards in
/// order, and then their full backwards in reverse. Every operation has a fixed time within the period, and starts in
/// the first period with ready inputs. Messages take no time, because a short message could otherwise cost an entire
/// period.
template <pipeline_graph Graph> class graph_period {
public:
    explicit graph_period(const basic_problem<Graph>& p)
        : mean_{mean_microbatch(p)}, period_{mean_.busiest_work()}, forward_(p.graph.stages()),
          backward_(p.graph.stages()) {
        set_turns();
        for (const stage s : mean_.graph.all_stages())
            wait_for_inputs(s);
        for (std::size_t i = mean_.graph.stages(); i-- > 0;)
            wait_for_gradients(stage{i});
    }

    /// The order of a step. Backwards run later than necessary by `further` periods.
    [[nodiscard]] basic_order<Graph> order(const Graph& g, std::size_t further) const {
        struct start {
            duration at;
            operation op;
        };
        std::vector<start> starts;
        const auto after = [&](std::size_t periods) { return static_cast<double>(periods) * period_; };
        for (const stage s : g.all_stages())
            for (const microbatch m : g.all_microbatches()) {
                starts.push_back({forward_[s] + after(m.position()), optpipe::forward(s, m)});
                starts.push_back({backward_[s] + after(m.position() + further), optpipe::backward(s, m)});
            }
        std::stable_sort(starts.begin(), starts.end(), [](const start& a, const start& b) { return a.at < b.at; });
        basic_order<Graph> result{g, {}};
        for (const auto& each : starts)
            result.operations.push_back(each.op);
        return result;
    }

private:
    static problem mean_microbatch(const basic_problem<Graph>& p) {
        auto mean = to_problem(p);
        mean.microbatches = {};
        mean.p2p = {};
        for (const stage s : p.graph.all_stages())
            set_scaled_stage(p, s, mean_factors(p, s), mean);
        return mean;
    }
    [[nodiscard]] duration end_of_forward(stage s) const { return forward_[s] + mean_.costs[s].forward; }
    [[nodiscard]] duration end_of_backward(stage s) const { return backward_[s] + mean_.costs[s].backward(); }

    void set_turns() {
        const auto paths = paths_of(mean_);
        for (const auto& stages : stages_by_rank(mean_.graph)) {
            if (stages.empty()) continue;
            auto at = paths.forward_start[stages[0]];
            for (const stage s : stages) {
                forward_[s] = at;
                at = end_of_forward(s);
            }
            for (std::size_t i = stages.size(); i-- > 0;) {
                backward_[stages[i]] = at;
                at = end_of_backward(stages[i]);
            }
        }
    }
    void wait_for_inputs(stage s) {
        duration ready{};
        mean_.graph.for_each_edge_into(s, [&](const edge& e) { ready = std::max(ready, end_of_forward(e.from)); });
        forward_[s] = first_turn(forward_[s], ready);
    }
    void wait_for_gradients(stage s) {
        auto ready = end_of_forward(s);
        mean_.graph.for_each_edge_out_of(s, [&](const edge& e) { ready = std::max(ready, end_of_backward(e.to)); });
        mean_.groups.for_each_member(
            s, [&](stage member, duration delay) { ready = std::max(ready, end_of_forward(member) + delay); });
        backward_[s] = first_turn(backward_[s], ready);
    }
    /// The first time that is at least `ready` and a whole number of periods after `turn`.
    [[nodiscard]] duration first_turn(duration turn, duration ready) const {
        constexpr double rounding = 1e-9;
        return turn + std::max(0.0, std::ceil((ready - turn) / period_ - rounding)) * period_;
    }

    problem mean_;
    duration period_;
    /// Start times of the first microbatch's operations. Before inputs are considered, each start time lies within the
    /// first period.
    per_stage<duration> forward_;
    per_stage<duration> backward_;
};

} // namespace detail

/// 1F1B of a graph. In each period, a rank runs one forward and one full backward per stage. The warm-up of a stage is
/// the number of periods between the forward and the backward of a microbatch. With equal stages, the warm-up is the
/// number of levels of the graph behind the stage. For a chain with one stage per rank, the schedule is 1F1B, or
/// Seq1F1B for slices.
///
/// The vocabulary of an output layer may be split over the ranks (a group). With a split vocabulary, the schedule is
/// the 1F1B of Vocabulary Parallelism (Yeung et al., 2024). F of a shard is its pass S, and B is its pass T. A
/// microbatch then waits for all ranks twice, and each wait takes a period. Ranks hold two more microbatches.
struct graph_1f1b_builder {
    static constexpr std::string_view name = "graph-1f1b";
    static constexpr bool any_graph = true;

    template <pipeline_graph Graph>
    [[nodiscard]] outcome<basic_order<Graph>> operator()(const basic_problem<Graph>& p) const {
        if (is_plain(p) && one_stage_per_rank(p.graph)) return does_not_apply("for this problem it is 1F1B");
        const injection entering{sequences_of(p)};
        const detail::graph_period<Graph> period{p};
        return inject(p, entering, period.order(p.graph, entering.most_slices - 1));
    }
};
inline constexpr graph_1f1b_builder graph_1f1b{};

} // namespace optpipe
