#pragma once

#include "optpipe/core/outcome.hpp"
#include "optpipe/formulation/operation_table.hpp"
#include "optpipe/formulation/plan_times.hpp"
#include "optpipe/pipeline/problem.hpp"
#include "optpipe/schedule/evaluate.hpp"
#include "optpipe/schedule/gap_filling.hpp"
#include "optpipe/schedule/operation.hpp"
#include "optpipe/schedule/schedule.hpp"

#include <cstddef>
#include <utility>
#include <vector>

namespace optpipe::formulation {

/// Times that need not fit together, as those of a relaxation, as a priority list: of what can come next and fits into
/// the memory that the order leaves, whatever the list starts first.
class priority_list {
public:
    priority_list(const operation_table& operations, const plan_times& wanted)
        : t_{operations}, wanted_{wanted}, done_(operations.size(), 0), device_(operations.ranks()),
          host_(operations.ranks()) {}

    /// Refused (`not_executable`) where it gets stuck.
    [[nodiscard]] outcome<order> run() {
        for (operation_id a = 0; a < t_.size(); ++a)
            if (takes_place(a)) open_.push_back(a);
        std::sort(open_.begin(), open_.end(), [&](operation_id a, operation_id b) {
            return wanted_.start[a] != wanted_.start[b] ? wanted_.start[a] < wanted_.start[b] : a < b;
        });
        order result;
        result.graph = t_.task().graph;
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
        why.sentence = "in this order the memory fills up with stashes none of which can be finished";
        return why;
    }
    [[nodiscard]] bool takes_place(operation_id a) const {
        const cell c = t_.cell_of(a);
        if (!t_.exists(a) || (t_.is_transfer(a) && wanted_.travels[c] == 0)) return false;
        return t_.role_of(a) != role::weight || wanted_.is_full[c] == 0;
    }
    [[nodiscard]] operation operation_of(operation_id a) const {
        auto op = t_.operation_of(a);
        if (t_.role_of(a) == role::gradient && wanted_.is_full[t_.cell_of(a)] != 0) op.kind = operation_kind::backward;
        return op;
    }
    [[nodiscard]] bool is_done(role what, cell c) const { return done_[t_.id(what, c)] != 0; }

    [[nodiscard]] bool may_come(operation_id a) const {
        const cell c = t_.cell_of(a);
        const stage s = t_.stage_of(a);
        const bool travels = wanted_.travels[c] != 0;
        switch (t_.role_of(a)) {
        case role::forward:
            if (s.value() > 0 && !is_done(role::forward, c - t_.microbatches())) return false;
            break;
        case role::gradient:
            if (!is_done(travels ? role::reload : role::forward, c)) return false;
            if (!t_.task().is_last(s) && !is_done(role::gradient, c + t_.microbatches())) return false;
            break;
        case role::weight: return is_done(role::gradient, c);
        case role::offload:
            if (!is_done(role::forward, c)) return false;
            break;
        case role::reload:
            if (!is_done(role::offload, c)) return false;
            break;
        }
        const rank r = t_.rank_of(a);
        const auto effect = memory_effect_of(t_.costs_of(a), operation_of(a).kind);
        const auto slack = t_.memory_slack();
        return device_[r] + effect.acquired_at_start <= t_.task().memory_limit[r] + slack &&
               host_[r] + effect.host_acquired_at_start <= t_.task().host_memory_limit[r] + slack;
    }
    void take(operation_id a, order& result) {
        const auto op = operation_of(a);
        const rank r = t_.rank_of(a);
        const auto effect = memory_effect_of(t_.costs_of(a), op.kind);
        device_[r] += effect.acquired_at_start - effect.released_at_end;
        host_[r] += effect.host_acquired_at_start - effect.host_released_at_end;
        done_[a] = 1;
        result.operations.push_back(op);
    }

    const operation_table& t_;
    const plan_times& wanted_;
    std::vector<unsigned char> done_;
    per_rank<memory_size> device_;
    per_rank<memory_size> host_;
    std::vector<operation_id> open_; ///< in the order of the list
};

/// The schedule of a priority list, squeezed: without transfers, what can fill a gap is pulled into it.
[[nodiscard]] inline outcome<schedule> priority_schedule(const operation_table& t, const plan_times& wanted) {
    auto listed = priority_list{t, wanted}.run();
    if (!listed) return listed.why();
    const bool travels = std::any_of(wanted.travels.begin(), wanted.travels.end(), [](auto w) { return w != 0; });
    return time_order(t.task(), travels ? *listed : fill_gaps(t.task(), *listed, t.task().memory_limit));
}

} // namespace optpipe::formulation
