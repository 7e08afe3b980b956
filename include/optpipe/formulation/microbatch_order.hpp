#pragma once

#include "optpipe/formulation/operation_table.hpp"
#include "optpipe/formulation/options.hpp"
#include "optpipe/formulation/precedence.hpp"

#include <algorithm>
#include <cstddef>

namespace optpipe::formulation {

/// Whether the operations of each kind and stage run in the order of microbatches.
///
/// *Without transfers, the order excludes no optimum.* All microbatches cost the same. Any schedule can be renumbered:
/// microbatch k gets the k-th F, gradient and W of every stage. The first k forwards of a stage have k different
/// predecessors, all of which end before the k-th forward starts. Thus the k-th forward of the previous stage ends in
/// time for the k-th forward of the stage. Likewise, the k-th gradient of a stage follows its k-th forward and the next
/// stage's k-th gradient. The k-th weight gradient starts after the k-th input gradient. Memory depends only on how
/// many operations of each kind have begun or ended. Thus the renumbered schedule is valid with the same times.
///
/// *With transfers, the order may exclude all optima*: a transfer belongs to one stash. Two statements hold in spite of
/// transfers:
/// - Microbatches may be numbered in the order of the forwards on stage 0.
/// - Weight gradients of split backwards follow the order of input gradients, as weight stashes are alike.
///
/// *With a choice of storage options, the order may exclude all optima, too*, as F and I of a microbatch share one
/// option. The two statements also hold with a choice of storage options.
///
/// *Graphs, slices and unequal microbatches*: the argument holds for each list of interchangeable microbatches.
/// Operations of one stage and list have inputs of one list, with the same delay. Memory depends only on the number of
/// operations of each list and kind. The first slices of sequences may be numbered in the order of their forwards on
/// stage 0. The weight gradients of a stage follow the order of its input gradients if their costs are equal.
[[nodiscard]] inline bool keeps_order(const operation_table& operations, overtaking wanted) {
    const auto names_matter = [&](stage s) {
        return operations.options(s).size() > 1 || operations.may_offload(s) || operations.may_recompute(s);
    };
    return wanted != overtaking::allowed || !operations.any_stage(names_matter);
}

/// Whether the problem has a model with the rule `wanted` on overtaking. Without overtaking, the problem must be plain,
/// and the stashes of a stage may differ only in being offloaded.
[[nodiscard]] inline bool has_form(const operation_table& t, overtaking wanted) {
    if (wanted != overtaking::allowed && !is_plain(t.problem())) return false;
    const auto differ = [&](stage s) {
        const auto& options = t.options(s);
        const auto first = t.stored(s, options.front()), last = t.stored(s, options.back());
        return options.size() > 2 || first.offloads() || (options.size() == 2 && !last.offloads()) ||
               t.may_recompute(s) || first.held != last.held || first.backward_extra != last.backward_extra;
    };
    return wanted == overtaking::allowed || !t.any_stage(differ);
}

/// Adds the order of interchangeable microbatches to `known`. The forwards of first slices on stage 0 are always
/// ordered. All other operations are ordered if `keep` is true. Weight gradients get no order if backwards may be full.
inline void order_microbatches(const operation_table& t, bool keep, precedence& known) {
    for (const stage s : t.problem().graph.all_stages())
        for (std::size_t m = 0; m < t.microbatches(); ++m) {
            const auto follow = [&](role what) {
                const auto a = t.id(what, t.cell_at(s, m));
                if (const auto next = t.next_interchangeable(a)) known.order(a, *next);
            };
            const bool is_first = s.value() == 0 && !t.problem().microbatches.slice_before(microbatch{m});
            if (keep || is_first) follow(role::forward);
            if (!keep) continue;
            if (t.has_gradient(s)) follow(role::gradient);
            if (t.has_weight(s) && !t.may_be_full(s)) follow(role::weight);
        }
}

/// Gives weight gradients of equal cost the order of their input gradients, and vice versa. Returns true if any order
/// is new.
inline bool align_weights(const operation_table& t, precedence& known) {
    bool changed = false;
    for (const stage s : t.problem().graph.all_stages()) {
        if (!t.has_weight(s) || t.may_be_full(s)) continue;
        for (std::size_t m = 0; m < t.microbatches(); ++m)
            for (std::size_t n = 0; n < t.microbatches(); ++n) {
                const auto a = t.cell_at(s, m), b = t.cell_at(s, n);
                if (m == n || !t.have_equal_weights(a, b)) continue;
                if (known.precedes(t.id(role::gradient, a), t.id(role::gradient, b)))
                    changed = known.order(t.id(role::weight, a), t.id(role::weight, b)) || changed;
                else if (known.precedes(t.id(role::weight, a), t.id(role::weight, b)))
                    changed = known.order(t.id(role::gradient, a), t.id(role::gradient, b)) || changed;
            }
    }
    return changed;
}

/// The same operation in the first stage of the group.
[[nodiscard]] inline operation_id in_first_stage(const operation_table& t, operation_id a) {
    auto first = t.stage_of(a);
    t.problem().groups.for_each_member(first, [&](stage member, duration) { first = std::min(first, member); });
    return t.id(t.role_of(a), t.cell_at(first, t.microbatch_of(a)));
}

/// Puts the forwards of two microbatches in the same order on all stages of a group. Returns true if any order is new.
inline bool align_groups(const operation_table& t, precedence& known) {
    bool changed = false;
    const auto follow = [&](operation_id a, operation_id b, operation_id c, operation_id d) {
        if (known.precedes(a, b)) changed = known.order(c, d) || changed;
    };
    for (const stage s : t.problem().graph.all_stages()) {
        if (!t.problem().groups.has(s)) continue;
        for (std::size_t m = 0; m < t.microbatches(); ++m)
            for (std::size_t n = 0; n < t.microbatches(); ++n) {
                const auto a = t.id(role::forward, t.cell_at(s, m)), b = t.id(role::forward, t.cell_at(s, n));
                if (m == n) continue;
                follow(a, b, in_first_stage(t, a), in_first_stage(t, b));
                follow(in_first_stage(t, a), in_first_stage(t, b), a, b);
            }
    }
    return changed;
}

} // namespace optpipe::formulation
