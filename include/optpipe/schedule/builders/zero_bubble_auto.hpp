#pragma once

#include "optpipe/core/stop_check.hpp"
#include "optpipe/core/tolerance.hpp"
#include "optpipe/schedule/builders/builder.hpp"
#include "optpipe/schedule/builders/zero_bubble_hand.hpp"
#include "optpipe/schedule/dispatch/lane_builder.hpp"
#include "optpipe/schedule/time/evaluate.hpp"

#include <algorithm>
#include <cstddef>
#include <string_view>
#include <utility>
#include <vector>

namespace optpipe {
namespace detail {

/// The three switches of the heuristic. The heuristic is run with all eight combinations, and the best result is used.
struct zero_bubble_switches {
    /// In the warm-up, run only forwards that don't delay the first gradient.
    bool keep_first_gradient = false;
    /// Skip a forward if the next gradient would have to wait for that forward.
    bool prefer_gradients = false;
    /// Put weight gradients even into gaps that are shorter than the weight gradient.
    bool fill_greedily = false;
};

/// One run of the heuristic: appends every operation after its inputs, and simulates the schedule.
template <pipeline_graph Graph> class zero_bubble_run {
public:
    constexpr zero_bubble_run(const basic_problem<Graph>& p, zero_bubble_switches switches, stop_check stop)
        : p_{p}, switches_{switches}, stop_{stop}, count_{p.graph.microbatches()},
          time_slack_{tolerance{}.at(longest(p))}, lanes_{p, p.memory_limit} {}

    /// Returns only a part of the order if `stop` returns true before the end.
    constexpr basic_order<Graph> run() && {
        warm_up();
        for (std::size_t round = 1; round < count_ && !stop_(); ++round)
            steady_state();
        for (const stage s : p_.graph.all_stages())
            lanes_.put_all_weights(p_.rank_of(s));
        return listed_order(std::move(lanes_).take());
    }

private:
    struct state : lane_builder {
        std::size_t forwards = 0;
        std::size_t gradients = 0;
    };

    static constexpr duration longest(const basic_problem<Graph>& p) {
        duration most{};
        for (const auto& c : p.costs)
            most = std::max({most, c.forward, c.backward_input, c.backward_weight});
        return most;
    }
    /// The state of the stage's rank. Every rank has one stage.
    constexpr state& own(stage s) { return lanes_[p_.rank_of(s)]; }
    constexpr const state& own(stage s) const { return lanes_[p_.rank_of(s)]; }
    constexpr memory_size limit(stage s) const { return lanes_.limit(p_.rank_of(s)); }
    /// The time when the input of the stage's next forward arrives.
    constexpr duration forward_arrival(stage s) const {
        return lanes_.arrival(forward(s, microbatch{own(s).forwards}));
    }
    constexpr duration gradient_arrival(stage s) const {
        return lanes_.arrival(backward_input(s, microbatch{own(s).gradients}));
    }

    constexpr void put_weight(stage s) { lanes_.put_weight(p_.rank_of(s)); }
    constexpr void put_forward(stage s) {
        lanes_.put(forward(s, microbatch{own(s).forwards}), forward_arrival(s));
        ++own(s).forwards;
    }
    /// Appends a gradient of the stage. A full backward replaces the gradient if the weight stash exceeds the
    /// activation, the excess doesn't fit, and the problem has full backwards.
    constexpr void put_gradient(stage s) {
        const auto& c = p_.costs[s];
        const microbatch m{own(s).gradients};
        const bool split = make_room(s, c.weight_stash - c.activation) || !p_.full_backward;
        lanes_.put(split ? backward_input(s, m) : backward(s, m), gradient_arrival(s));
        ++own(s).gradients;
    }
    constexpr bool make_room(stage s, memory_size amount) {
        return amount <= memory_size{} || lanes_.make_room(p_.rank_of(s), amount);
    }
    constexpr void fill_gap(stage s, duration until) {
        const auto& lane = own(s);
        const auto length = p_.costs[s].backward_weight;
        while (lane.has_weight() && lane.clock + length <= until + time_slack_)
            put_weight(s);
        const auto gap = until - lane.clock;
        if (!lane.has_weight() || gap <= time_slack_) return;
        if (switches_.fill_greedily || gap > lanes_.longest_idle() - lane.idle + time_slack_) put_weight(s);
    }

    constexpr void warm_up() {
        for (const stage s : p_.graph.all_stages())
            put_forward(s);
        const auto more = further_forwards();
        for (const stage s : p_.graph.all_stages())
            for (std::size_t i = 0; i < more[s]; ++i)
                put_forward(s);
        for (std::size_t i = p_.graph.stages(); i-- > 0;)
            put_gradient(stage{i});
    }
    /// For each stage, the number of forwards after its first forward and before its first gradient.
    constexpr per_stage<std::size_t, Graph::stage_extent> further_forwards() const {
        per_stage<std::size_t, Graph::stage_extent> more(p_.graph.stages(), 0);
        const stage last{p_.graph.stages() - 1};
        auto gradient_end = own(last).clock + p_.costs[last].backward_input;
        for (std::size_t i = last.position(); i-- > 0;) {
            const stage s{i};
            const auto& c = p_.costs[s];
            const auto arrival = gradient_end + p_.hop(s.next(), s);
            auto clock = own(s).clock;
            auto held = own(s).held;
            const auto in_time = [&] {
                return switches_.keep_first_gradient ? clock + c.forward <= arrival + time_slack_
                                                     : clock + time_slack_ < arrival;
            };
            for (; more[s] + 1 < count_ && held + c.activation <= limit(s) && in_time(); ++more[s]) {
                clock += c.forward;
                held += c.activation;
            }
            gradient_end = std::max(clock, arrival) + c.backward_input;
        }
        for (std::size_t i = 1; i < p_.graph.stages(); ++i) {
            const auto before = more[stage{i - 1}];
            const auto most = before + 1 == count_ || before == 0 ? before : before - 1;
            more[stage{i}] = std::min(more[stage{i}], most);
        }
        return more;
    }

    /// Appends at most one forward and exactly one gradient on every stage. A stage without a stash for its gradient
    /// can do a forward: only waiting weight gradients hold memory on its rank. If a stage has no stash, no later stage
    /// has one either.
    constexpr void steady_state() {
        const auto wanted = wanted_forwards();
        for (const stage s : p_.graph.all_stages()) {
            if (!wanted[s.position()] || !can_forward(s)) continue;
            make_room(s, p_.costs[s].activation);
            if (!p_.is_first(s)) fill_gap(s, forward_arrival(s));
            put_forward(s);
        }
        for (std::size_t i = p_.graph.stages(); i-- > 0;) {
            const stage s{i};
            if (p_.is_first(s) && own(s).forwards == count_) lanes_.put_all_weights(p_.rank_of(s));
            fill_gap(s, gradient_arrival(s));
            put_gradient(s);
        }
    }
    /// Whether a forward's input has arrived, and the forward fits once all waiting weight gradients have run.
    constexpr bool can_forward(stage s) const {
        const auto& lane = own(s);
        const auto& c = p_.costs[s];
        if (lane.forwards == count_ || (!p_.is_first(s) && own(s.previous()).forwards == lane.forwards)) return false;
        return lane.held - static_cast<double>(lane.waiting_weights()) * c.weight_stash +
                   p_.held_in_backward(s, c.activation) <=
               limit(s);
    }
    constexpr std::vector<unsigned char> wanted_forwards() const {
        std::vector<unsigned char> wanted(p_.graph.stages(), 1);
        const auto most = lanes_.longest_idle();
        for (std::size_t i = p_.graph.stages(); i-- > 0;) {
            const stage s{i};
            const bool last = p_.is_last(s);
            const bool wants =
                own(s).forwards < count_ && (last || !switches_.prefer_gradients || is_worthwhile(s, most));
            wanted[i] = wants && (last || wanted[i + 1]) ? 1 : 0;
        }
        return wanted;
    }
    constexpr bool is_worthwhile(stage s, duration most_idle) const {
        const auto& lane = own(s);
        const auto& next = own(s.next());
        if (lane.forwards < next.forwards + 2) return true;
        const auto& after = p_.costs[s.next()];
        const auto arrival = next.clock + after.forward + after.backward_input + p_.hop(s.next(), s);
        if (lane.clock >= arrival + time_slack_) return false;
        if (lane.clock + forward_with_room(s) <= arrival + time_slack_) return true;
        return arrival - lane.clock > most_idle - lane.idle + time_slack_;
    }
    /// Duration of a forward, including the weight gradients that make room for it.
    constexpr duration forward_with_room(stage s) const {
        const auto& c = p_.costs[s];
        auto held = own(s).held + c.activation;
        auto length = c.forward;
        for (std::size_t i = 0; i < own(s).waiting_weights() && held > limit(s); ++i) {
            held -= c.weight_stash;
            length += c.backward_weight;
        }
        return length;
    }

    const basic_problem<Graph>& p_;
    zero_bubble_switches switches_;
    stop_check stop_;
    std::size_t count_;
    duration time_slack_;
    lane_builders<Graph, state> lanes_;
};

/// A refusal that names the rank whose limit is furthest below one stash. The refusal is empty if every rank has room
/// for a stash.
template <pipeline_graph Graph> [[nodiscard]] constexpr refusal lacks_one_stash(const basic_problem<Graph>& p) {
    refusal why;
    const auto slack = tolerance{}.at(p.memory_scale());
    for (const stage s : p.graph.all_stages()) {
        const rank r = p.rank_of(s);
        const auto needed = p.costs[s].activation;
        if (needed <= p.memory_limit[r] + slack || needed - p.memory_limit[r] <= why.needed - why.limit) continue;
        why.reason = refusal_reason::over_memory;
        why.rank = r;
        why.needed = needed;
        why.limit = p.memory_limit[r];
    }
    return why;
}

} // namespace detail

/// The automatic scheduler of Zero Bubble (Qi et al., 2024, section 3). The method is called ZB-1p with memory for R
/// stashes per rank, and ZB-2p with memory for 2R. Before its first gradient, a stage runs as many forwards as memory
/// and time allow. After the warm-up, the stage alternates one forward and one input gradient. A weight gradient runs
/// if it fits into a gap, if the gap would make this rank the idlest, or if memory must be freed. The result is the run
/// with the least objective among eight runs. Among equal objectives, the least peak memory decides.
///
/// Needs one stage per rank, in any order of the ranks. Costs, limits and communication may differ between stages.
/// Nothing is offloaded. The schedule keeps every memory limit. Refuses with `over_memory` if a limit is below one
/// stash. O(S²M).
struct zero_bubble_auto_builder {
    static constexpr std::string_view name = "zb-auto";

    template <pipeline_graph Graph>
    [[nodiscard]] constexpr outcome<basic_order<Graph>> operator()(const basic_problem<Graph>& p,
                                                                   stop_check stop = {}) const {
        if (const auto why = detail::why_no_zero_bubble(p); !why.empty()) return does_not_apply(why);
        if (const auto why = detail::lacks_one_stash(p); why.reason == refusal_reason::over_memory) return why;

        outcome<basic_order<Graph>> best;
        refusal why_not;
        auto least = duration::unlimited();
        auto least_peak = memory_size::unlimited();
        for (unsigned i = 0; i < 8; ++i) {
            const detail::zero_bubble_switches switches{(i & 1U) != 0, (i & 2U) != 0, (i & 4U) != 0};
            auto made = detail::zero_bubble_run<Graph>{p, switches, stop}.run();
            if (stop()) return was_stopped();
            const auto timed = time_order(p, made);
            if (!timed) {
                why_not = timed.why();
                continue;
            }
            const auto value = objective_of(p, *timed);
            const auto needed = memory_needed(p, made);
            const auto peak = *std::max_element(needed.begin(), needed.end());
            const auto slack = tolerance{}.at(value);
            if (value > least + slack || (value >= least - slack && peak >= least_peak)) continue;
            least = std::min(least, value);
            least_peak = peak;
            best = std::move(made);
        }
        if (!best) return why_not;
        return best;
    }
};
inline constexpr zero_bubble_auto_builder zero_bubble_auto{};

} // namespace optpipe
