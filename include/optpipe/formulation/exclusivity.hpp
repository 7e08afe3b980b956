#pragma once

#include "optpipe/formulation/model_builder.hpp"

#include <cstddef>
#include <map>
#include <utility>

namespace optpipe::formulation {

/// Whether a and b are weight gradients of one stage that must follow the order of their input gradients.
inline bool is_aligned(const operation_table& t, operation_id a, operation_id b) {
    return t.role_of(a) == role::weight && t.role_of(b) == role::weight && t.stage_of(a) == t.stage_of(b) &&
           t.have_equal_weights(t.cell_of(a), t.cell_of(b));
}

/// The weight gradients of two split backwards follow the order of their input gradients. Needed only if the backwards
/// of the stage may also be full.
inline void align_weights(model_builder& d, operation_id a, operation_id b) {
    const auto& t = d.operations();
    const auto gradient = [&](operation_id w) { return t.id(role::gradient, t.cell_of(w)); };
    for (const auto& [x, y] : {std::pair{a, b}, std::pair{b, a}}) {
        sum s;
        s.add(1.0, d.order(x, y)).add(-1.0, d.order(gradient(x), gradient(y))).add(1.0, d.full(t.cell_of(y)));
        d.add_row(family::full_backward, s, 0.0, milp::infinity);
    }
}

/// Adds E_a ≥ E_b + T_a − Ω·P_ab and P_ab + P_ba = 1 for any two computations of a rank (README, equation 3). Each pair
/// of computations with an unknown order has one variable. The number Ω is as small as the time windows of a and b
/// allow.
///
/// Two weight gradients of a stage share the order variable of their input gradients (`microbatch_order`). The forwards
/// of two microbatches have the same order variable on all stages of a group.
inline void add_exclusivity(model_builder& d) {
    const auto& t = d.operations();
    std::map<std::pair<operation_id, operation_id>, literal> of_groups; // the order variables of groups, indexed by two
                                                                        // forwards of the group's first stage
    const auto new_order = [&](operation_id a, operation_id b) {
        return d.add_binary(family::exclusivity, meaning::of(meaning::kind::order, a, b),
                            "p." + t.name_of(a) + "." + t.name_of(b));
    };
    const auto order_of = [&](operation_id a, operation_id b) {
        if (t.stage_of(a) != t.stage_of(b) || t.role_of(a) != t.role_of(b)) return new_order(a, b);
        if (t.role_of(a) == role::weight && is_aligned(t, a, b) && !t.may_be_full(t.stage_of(a)))
            return d.order(t.id(role::gradient, t.cell_of(a)), t.id(role::gradient, t.cell_of(b)));
        if (t.role_of(a) != role::forward || !d.problem().groups.has(t.stage_of(a))) return new_order(a, b);
        const auto known = of_groups.find({in_first_stage(t, a), in_first_stage(t, b)});
        if (known != of_groups.end()) return known->second;
        return of_groups[{in_first_stage(t, a), in_first_stage(t, b)}] = new_order(a, b);
    };
    const auto add = [&](operation_id a, operation_id b) {
        d.set_order(a, b, order_of(a, b));
        d.imply_order(family::exclusivity, {d.order(a, b)}, end_of(a), start_of(b));
        d.imply_order(family::exclusivity, {d.order(b, a)}, end_of(b), start_of(a));
        if (is_aligned(t, a, b) && t.may_be_full(t.stage_of(a))) align_weights(d, a, b);
    };
    for (const rank r : d.problem().graph.all_ranks()) {
        const auto& own = d.precedences().computations_on(r); // gradients come before weight gradients
        for (std::size_t i = 0; i < own.size(); ++i)
            for (std::size_t k = i + 1; k < own.size() && !d.is_too_large(); ++k)
                if (!d.precedences().precedes(own[i], own[k]) && !d.precedences().precedes(own[k], own[i]))
                    add(own[i], own[k]);
    }
}

/// I and W of a full backward are contiguous, so E_W ≤ E_I + T_W.
inline void add_full_backwards(model_builder& d) {
    const auto& t = d.operations();
    for (cell c = 0; c < t.cells(); ++c) {
        if (d.full(c).is_never()) continue;
        const auto g = t.id(role::gradient, c), w = t.id(role::weight, c);
        const double big_m = d.latest(end_of(w)) - d.earliest(end_of(g)) - t.length(w);
        sum s;
        s.add(1.0, d.end(g)).add(-1.0, d.end(w)).add(t.length(w) + big_m).add(-big_m, d.full(c));
        d.add_row(family::full_backward, s, 0.0, milp::infinity);
    }
}

} // namespace optpipe::formulation
