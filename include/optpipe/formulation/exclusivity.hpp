#pragma once

#include "optpipe/formulation/model_builder.hpp"

#include <cstddef>

namespace optpipe::formulation {

/// Makes the W of split backwards follow the order of their gradients, for stages whose backwards may be full.
inline void align_weights(model_builder& d, operation_id a, operation_id b) {
    const auto& t = d.operations();
    const auto gradient = [&](operation_id w) { return t.id(role::gradient, t.cell_of(w)); };
    for (const auto& [x, y] : {std::pair{a, b}, std::pair{b, a}}) {
        sum s;
        s.add(1.0, d.order(x, y)).add(-1.0, d.order(gradient(x), gradient(y))).add(1.0, d.full(t.cell_of(y)));
        d.add_row(family::full_backward, s, 0.0, milp::infinity);
    }
}

/// A rank runs one computation at a time: E_a ≥ E_b + T_a − Ω·P_ab and P_ab + P_ba = 1 (README, equation 3). Each pair
/// of unknown order has one variable, and the least Ω that the time windows of both allow.
///
/// Two W of a stage share the variable of their gradients (`microbatch_order`).
inline void add_exclusivity(model_builder& d) {
    const auto& t = d.operations();
    const auto add = [&](operation_id a, operation_id b) {
        const bool weights = t.role_of(a) == role::weight && t.role_of(b) == role::weight;
        const bool aligned = weights && t.stage_of(a) == t.stage_of(b);
        if (aligned && !t.may_be_full(t.stage_of(a)))
            d.set_order(a, b, d.order(t.id(role::gradient, t.cell_of(a)), t.id(role::gradient, t.cell_of(b))));
        else
            d.set_order(a, b,
                        d.add_binary(family::exclusivity, meaning::of(meaning::kind::order, a, b),
                                     "p." + t.name_of(a) + "." + t.name_of(b)));
        d.imply_order(family::exclusivity, {d.order(a, b)}, end_of(a), start_of(b));
        d.imply_order(family::exclusivity, {d.order(b, a)}, end_of(b), start_of(a));
        if (aligned && t.may_be_full(t.stage_of(a))) align_weights(d, a, b);
    };
    for (const rank r : d.problem().graph.all_ranks()) {
        const auto& own = d.precedences().computations_on(r); // gradients come before W
        for (std::size_t i = 0; i < own.size(); ++i)
            for (std::size_t k = i + 1; k < own.size() && !d.is_too_large(); ++k)
                if (!d.precedences().precedes(own[i], own[k]) && !d.precedences().precedes(own[k], own[i]))
                    add(own[i], own[k]);
    }
}

/// I and W of a full backward are contiguous: E_W ≤ E_I + T_W.
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
