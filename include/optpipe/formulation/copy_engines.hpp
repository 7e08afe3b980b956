#pragma once

#include "optpipe/formulation/model_builder.hpp"
#include "optpipe/schedule/rules/transfer_resources.hpp"

#include <cstddef>
#include <vector>

namespace optpipe::formulation {

/// Whether two transfers must not overlap.
inline bool exclude_each_other(const operation_table& t, operation_id a, operation_id b) {
    const auto is_inward = [&](operation_id x) { return t.role_of(x) == role::reload; };
    return optpipe::exclude_each_other(t.problem().transfer, t.rank_of(a), is_inward(a), t.rank_of(b), is_inward(b));
}

namespace detail {

/// Whether other rows already imply the order of two transfers.
inline bool is_in_order(const model_builder& d, operation_id a, operation_id b) {
    const auto& t = d.operations();
    if (t.cell_of(a) == t.cell_of(b)) return true;
    if (!d.keeps_order() || t.stage_of(a) != t.stage_of(b)) return false;
    if (t.role_of(a) == t.role_of(b)) return true;
    const auto out = t.role_of(a) == role::offload ? a : b;
    const auto in = out == a ? b : a;
    return t.microbatch_of(out) < t.microbatch_of(in); // whether the reload comes before the later microbatch's offload
}

/// Whether transfer a can come before transfer b.
inline bool fits(const model_builder& d, operation_id a, operation_id b) {
    const auto& t = d.operations();
    const auto first = [&](operation_id x) { // the earliest end
        const auto c = t.cell_of(x);
        const double way_out = t.length(t.id(role::offload, c));
        return d.earliest(end_of(x)) + way_out + (t.role_of(x) == role::reload ? t.length(x) : 0.0);
    };
    const auto last = [&](operation_id x) { // the latest start
        const double way_in = t.length(t.id(role::reload, t.cell_of(x)));
        return d.latest(start_of(x)) - way_in - (t.role_of(x) == role::offload ? t.length(x) : 0.0);
    };
    return first(a) <= last(b) + d.slack();
}

inline void exclude(model_builder& d, operation_id a, operation_id b) {
    const auto& t = d.operations();
    if (t.rank_of(a) == t.rank_of(b)) {
        if (d.precedences().precedes(d.needs_stash(a), d.forward_of(b)))
            return d.set_transfer_order(a, b, literal::always());
        if (d.precedences().precedes(d.needs_stash(b), d.forward_of(a)))
            return d.set_transfer_order(a, b, literal::never());
    }
    // If a stage keeps the order of microbatches, zero-length transfers keep this order, too. A zero-length transfer
    // always has a place between two transfers of the stage.
    const bool counts_points = d.keeps_order() && t.stage_of(a) == t.stage_of(b);
    const auto may_be = [&](operation_id x, operation_id y) {
        return counts_points ? d.earliest(end_of(x)) <= d.latest(start_of(y)) + d.slack() : fits(d, x, y);
    };
    const bool a_first = may_be(a, b), b_first = may_be(b, a);
    const auto order = [&] {
        if (a_first != b_first) return a_first ? literal::always() : literal::never();
        return d.add_binary(family::copy_engines, meaning::of(meaning::kind::transfer_order, a, b),
                            "t." + t.name_of(a) + "." + t.name_of(b));
    }();
    d.set_transfer_order(a, b, order);
    std::vector<literal> given;
    if (!counts_points) given = {d.offloaded(t.cell_of(a)), d.offloaded(t.cell_of(b))};
    auto reversed = given;
    given.push_back(order);
    reversed.push_back(order.negation());
    d.imply_order(family::copy_engines, given, end_of(a), start_of(b));
    d.imply_order(family::copy_engines, reversed, end_of(b), start_of(a));
}

} // namespace detail

/// Adds the rows of copy engines (README, equation 5) and of shared links (equation 6).
inline void add_copy_engines(model_builder& d) {
    const auto& t = d.operations();
    std::vector<operation_id> all;
    for (operation_id a = t.id(role::offload, 0); a < t.size(); ++a)
        if (t.exists(a) && !d.offloaded(t.cell_of(a)).is_never()) all.push_back(a);
    for (std::size_t i = 0; i < all.size(); ++i)
        for (std::size_t k = i + 1; k < all.size() && !d.is_too_large(); ++k)
            if (exclude_each_other(t, all[i], all[k]) && !detail::is_in_order(d, all[i], all[k]))
                detail::exclude(d, all[i], all[k]);
}

} // namespace optpipe::formulation
