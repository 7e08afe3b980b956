#pragma once

#include "optpipe/core/compiled.hpp"
#include "optpipe/core/outcome.hpp"
#include "optpipe/formulation/operation_table.hpp"
#include "optpipe/formulation/plan_times.hpp"
#include "optpipe/schedule/schedule.hpp"

namespace optpipe::formulation {

/// The schedule that list scheduling makes with the starts in `wanted` as priorities. If the problem is plain and all
/// stashes are kept, operations are also moved into earlier gaps.
[[nodiscard]] outcome<schedule> priority_schedule(const operation_table& t, const plan_times& wanted);

} // namespace optpipe::formulation

#if OPTPIPE_DEFINES(formulation)
#include "optpipe/pipeline/problem.hpp"
#include "optpipe/schedule/dispatch/gap_filling.hpp"
#include "optpipe/schedule/operation.hpp"
#include "optpipe/schedule/time/evaluate.hpp"

#include <cstddef>
#include <utility>
#include <vector>

namespace optpipe::formulation {

/// List scheduling. The priorities may be inconsistent times, such as the times of a relaxation. Each step picks the
/// earliest operation that is ready and fits in memory.
class priority_list {
public:
    priority_list(const operation_table& operations, const plan_times& wanted)
        : t_{operations}, wanted_{wanted}, done_(operations.size(), 0), device_(operations.ranks()),
          host_(operations.ranks()) {}

    /// Refused (`not_executable`) if no operation can be next.
    [[nodiscard]] outcome<order> run() {
        for (operation_id a = 0; a < t_.size(); ++a)
            if (wanted_.takes_place(t_, a)) open_.push_back(a);
        std::sort(open_.begin(), open_.end(), [&](operation_id a, operation_id b) {
            return wanted_.start[a] != wanted_.start[b] ? wanted_.start[a] < wanted_.start[b] : a < b;
        });
        order result;
        result.graph = t_.problem().graph;
        while (!open_.empty()) {
            const auto next = std::find_if(open_.begin(), open_.end(), [&](operation_id a) { return may_come(a); });
            if (next == open_.end()) return stuck();
            take(*next, result);
            open_.erase(next);
        }
        return result;
    }

private:
    static refusal stuck() {
        refusal why;
        why.reason = refusal_reason::not_executable;
        why.sentence = "the memory fills up with stashes of which none can be finished";
        return why;
    }
    [[nodiscard]] bool may_come(operation_id a) const {
        const auto& p = t_.problem();
        const auto op = wanted_.operation_of(t_, a);
        bool has_inputs = true;
        for_each_dependency(
            p, op, stash_way{wanted_.stored(t_, t_.cell_of(a))},
            [&](const operation& before, duration) { has_inputs = has_inputs && done_[t_.id_of(before)] != 0; });
        if (!has_inputs) return false;
        const rank r = t_.rank_of(a);
        const auto effect = memory_effect_of(p, op);
        const auto slack = t_.memory_slack();
        return device_[r] + effect.acquired_at_start <= p.memory_limit[r] + slack &&
               host_[r] + effect.host_acquired_at_start <= p.host_memory_limit[r] + slack;
    }
    void take(operation_id a, order& result) {
        const auto op = wanted_.operation_of(t_, a);
        const rank r = t_.rank_of(a);
        const auto effect = memory_effect_of(t_.problem(), op);
        device_[r] += effect.acquired_at_start - effect.released_at_end;
        host_[r] += effect.host_acquired_at_start - effect.host_released_at_end;
        for_each_release_of_others(t_.problem(), op, [&](rank of, memory_size amount) { device_[of] -= amount; });
        done_[a] = 1;
        result.operations.push_back(op);
    }

    const operation_table& t_;
    const plan_times& wanted_;
    std::vector<unsigned char> done_;
    per_rank<memory_size> device_;
    per_rank<memory_size> host_;
    std::vector<operation_id> open_; ///< the operations that aren't done, in the order of the list
};

OPTPIPE_INLINE outcome<schedule> priority_schedule(const operation_table& t, const plan_times& wanted) {
    auto listed = priority_list{t, wanted}.run();
    if (!listed) return listed.why();
    bool are_kept = true;
    for (cell c = 0; c < t.cells(); ++c) {
        const auto stored = wanted.stored(t, c);
        const auto& costs = t.problem().costs[t.stage_of(c)];
        are_kept =
            are_kept && !stored.offloads() && stored.extra_work() == duration{} && stored.held == costs.activation;
    }
    are_kept = are_kept && is_plain(t.problem()); // required by `fill_gaps`
    return time_order(t.problem(), are_kept ? fill_gaps(t.problem(), *listed, t.problem().memory_limit) : *listed);
}

} // namespace optpipe::formulation
#endif
