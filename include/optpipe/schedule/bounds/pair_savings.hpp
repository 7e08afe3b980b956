#pragma once

#include "optpipe/core/quantity.hpp"
#include "optpipe/pipeline/problem.hpp"

#include <algorithm>
#include <cstddef>
#include <vector>

namespace optpipe::detail {

/// Upper bounds on the time that pairs save, compared with their parts one after the other. Each operation is in one
/// pair at most. The recomputation inside a backward isn't shortened.
template <pipeline_graph Graph> class pair_savings {
public:
    explicit pair_savings(const basic_problem<Graph>& p) : p_{&p}, longest_(p.graph.stages()) {
        if (p.overlaps.empty()) return;
        for (const stage s : p.graph.all_stages())
            for (const microbatch m : p.graph.all_microbatches()) {
                const auto c = p.cost(s, m);
                auto& own = longest_[s];
                own.forward = std::max(own.forward, c.forward);
                own.backward_input = std::max(own.backward_input, c.backward_input);
                own.backward_weight = std::max(own.backward_weight, c.backward_weight);
            }
    }

    /// The most that a pair with this forward saves.
    [[nodiscard]] duration of_forward(stage s, microbatch m) const {
        if (p_->overlaps.empty()) return {};
        duration most{};
        const auto length = p_->cost(s, m).forward;
        for (const overlap& each : p_->overlaps)
            if (each.forward == s)
                most = std::max(most, saved(each, length, length_of(longest_[each.backward], each.kind)));
        return most;
    }
    /// The most that a pair with this backward, of either kind, saves.
    [[nodiscard]] duration of_backward(stage s, microbatch m) const {
        if (p_->overlaps.empty()) return {};
        duration most{};
        const auto c = p_->cost(s, m);
        for (const overlap& each : p_->overlaps)
            if (each.backward == s)
                most = std::max(most, saved(each, longest_[each.forward].forward, length_of(c, each.kind)));
        return most;
    }
    /// The most that all pairs of a rank save. The rank's first forward is in no pair, because it comes before all
    /// backwards; neither is its last backward, which comes after all forwards.
    [[nodiscard]] duration of_rank(rank r) const {
        if (p_->overlaps.empty()) return {};
        const auto of_forwards = sum_without_least(r, [&](stage s, microbatch m) { return of_forward(s, m); });
        const auto of_backwards = sum_without_least(r, [&](stage s, microbatch m) { return of_backward(s, m); });
        return std::min(of_forwards, of_backwards);
    }

private:
    /// The time that a pair saves if its parts last this long. The saving grows with both durations.
    [[nodiscard]] duration saved(const overlap& each, duration forward, duration backward) const {
        const auto usual = p_->costs[each.forward].forward + length_of(p_->costs[each.backward], each.kind);
        const auto share = std::max(0.0, 1.0 - each.duration / usual);
        return std::min({forward, backward, share * (forward + backward)});
    }
    template <class Most> [[nodiscard]] duration sum_without_least(rank r, const Most& most) const {
        duration sum{};
        auto least = duration::unlimited();
        for (const stage s : p_->graph.all_stages()) {
            if (p_->rank_of(s) != r) continue;
            for (const microbatch m : p_->graph.all_microbatches()) {
                const auto of = most(s, m);
                sum += of;
                least = std::min(least, of);
            }
        }
        return least.is_unlimited() ? duration{} : sum - least;
    }

    const basic_problem<Graph>* p_;
    /// The longest F, I and W of each stage, over all microbatches.
    per_stage<stage_costs> longest_;
};

} // namespace optpipe::detail
