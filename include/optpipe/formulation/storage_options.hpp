#pragma once

#include "optpipe/formulation/load_rows.hpp"
#include "optpipe/formulation/model_builder.hpp"
#include "optpipe/formulation/variable_names.hpp"

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

namespace optpipe::formulation {

/// Storage options (README, equation 9): x_o = 1 if a stash has option o of its stage.
///
/// A cell has a recomputation if any option of its stage has one. An absent recomputation has length 0 and comes just
/// before its gradient. Thus the computations of a rank are always totally ordered, and rows about this order remain
/// valid.
///
/// Adds the variables for the choice of a cell. A single option needs no variable, and two options need one variable.
inline void add_choices(model_builder& d, cell c) {
    const auto& t = d.operations();
    const stage s = t.stage_of(c);
    std::vector<literal> all;
    for (const auto o : options_with_variable(t, s))
        all.push_back(
            d.add_binary(family::storage_options, meaning::of(meaning::kind::chosen, c, o), storage_name(t, c, o)));
    if (all.size() < t.options(s).size())
        all.insert(all.begin(), all.empty() ? literal::always() : all.front().negation());
    d.set_choices(c, std::move(all));
}

namespace detail {

/// Whether the chosen option of a cell satisfies the condition.
template <class Condition>
literal option_with(model_builder& d, cell c, const Condition& holds, const std::string& name) {
    std::vector<literal> with, without;
    const auto& options = d.operations().options(d.operations().stage_of(c));
    for (std::size_t i = 0; i < options.size(); ++i)
        (holds(options[i]) ? with : without).push_back(d.choices(c)[i]);
    if (with.empty()) return literal::never();
    if (without.empty()) return literal::always();
    if (with.size() == 1) return with.front();
    if (without.size() == 1) return without.front().negation();
    auto what = meaning::excess_of(0.0);
    sum row;
    for (const auto& l : with) {
        what.parts.push_back({1.0, l});
        row.add(1.0, l);
    }
    const auto any = d.add_binary(family::storage_options, std::move(what), name);
    d.add_row(family::storage_options, row.add(-1.0, any), 0.0, 0.0);
    return any;
}

/// Places an absent recomputation just before its gradient, with length 0 and the gradient's order.
inline void place_unused_recomputation(model_builder& d, cell c, const literal& recomputes) {
    const auto& t = d.operations();
    const auto again = t.id(role::recompute, c), g = t.id(role::gradient, c);
    for (const auto b : d.precedences().computations_on(t.rank_of(again))) {
        if (b == again || b == g) continue;
        const sum row = sum{}.add(1.0, recomputes).add(1.0, d.order(g, b)).add(-1.0, d.order(again, b));
        d.add_row(family::storage_options, row, 0.0, milp::infinity);
    }
    d.imply_order(family::storage_options, {recomputes.negation()}, start_of(g), end_of(again));
}

inline void add_options_of(model_builder& d, cell c) {
    const auto& t = d.operations();
    const stage s = t.stage_of(c);
    sum one;
    for (const auto& l : d.choices(c))
        one.add(1.0, l);
    d.add_row(family::storage_options, one, 1.0, 1.0);
    const auto with = [&](const char* what, const auto& holds) {
        return option_with(d, c, holds, cell_name(t, what, c));
    };
    if (t.may_offload(s)) d.set_offloaded(c, with("w.", [&](storage_index o) { return t.stored(s, o).offloads(); }));
    if (t.may_recompute(s))
        place_unused_recomputation(d, c,
                                   with("recomputed.", [&](storage_index o) { return t.stored(s, o).recomputes(); }));
    // A full B is allowed only with storage options for which I and W may be worse.
    if (t.may_be_full(s)) {
        const auto better = with("short.", [&](storage_index o) { return t.is_full_better(s, o); });
        d.add_row(family::storage_options, sum{}.add(1.0, better).add(-1.0, d.full(c)), 0.0, milp::infinity);
    }
}

} // namespace detail

/// Adds Σ x_o = 1 and the consequences of an option: offload, recomputation, and full backward.
inline void add_storage_options(model_builder& d) {
    for (cell c = 0; c < d.operations().cells() && !d.is_too_large(); ++c)
        detail::add_options_of(d, c);
}

/// Adds C ≥ (earliest start on the rank) + Σ T_a + (time after the rank's last operation). For `span`, the row is C ≥ Σ
/// T_a.
inline void add_work_rows(model_builder& d) {
    for (const rank r : d.problem().graph.all_ranks()) {
        sum s;
        for (const auto a : d.precedences().computations_on(r))
            d.add_length(s, -1.0, a);
        if (s.terms.empty()) continue; // the load rows already imply this row
        const double outside = d.is_span() ? 0.0 : least_head(d, r) + least_tail(d, r);
        d.add_row(family::storage_options, s.add(1.0, d.objective), outside, milp::infinity);
    }
}

/// A level of memory at an event. `hold` adds an amount if the literal `when` is true, and `release` subtracts an
/// amount. The level is never below the actual memory, and equals it at integral points. An amount that depends on the
/// storage option is (least)·when plus a variable h for the excess:
///
///     hold      h ≥ excess − (most − least)·(1 − when), h ≥ 0
///     release   h ≤ excess, h ≤ (most − least)·when
class memory_level {
public:
    memory_level(model_builder& d, family f, event at) : d_{d}, family_{f}, at_{at} {}

    [[nodiscard]] sum& total() { return total_; }
    memory_level& hold(const amount& a) {
        a.add_to(total_, 1.0);
        return *this;
    }
    /// The new variable is named after the operation `of`, to which `when` refers. `when` must be false for every
    /// option with an amount of 0.
    memory_level& hold(const amount& a, const literal& when, operation_id of) {
        if (is_linear(a, when)) return add_linear(1.0, a, when);
        const double range = a.most - a.least;
        const auto held = add_product(a, when, "held.", of);
        d_.add_row(family_, minus_above(a).add(1.0, held).add(range).add(-range, when), 0.0, milp::infinity);
        total_.add(a.least, when).add(1.0, held);
        return *this;
    }
    memory_level& release(const amount& a, const literal& when, operation_id of) {
        if (is_linear(a, when)) return add_linear(-1.0, a, when);
        const double range = a.most - a.least;
        const auto released = add_product(a, when, "released.", of);
        d_.add_row(family_, minus_above(a).add(1.0, released), -milp::infinity, 0.0);
        d_.add_row(family_, sum{}.add(1.0, released).add(-range, when), -milp::infinity, 0.0);
        total_.add(-a.least, when).add(-1.0, released);
        return *this;
    }

private:
    [[nodiscard]] static bool is_linear(const amount& a, const literal& when) {
        return a.is_fixed() || when.is_constant();
    }
    memory_level& add_linear(double factor, const amount& a, const literal& when) {
        if (when.is_always())
            a.add_to(total_, factor);
        else
            total_.add(factor * a.least, when);
        return *this;
    }
    [[nodiscard]] static sum minus_above(const amount& a) {
        sum s;
        for (const auto& [more, chosen] : a.above)
            s.add(-more, chosen);
        return s;
    }
    milp::variable add_product(const amount& a, const literal& when, const char* what, operation_id of) {
        auto product = meaning::of(meaning::kind::product);
        product.parts = a.above;
        product.when = when;
        return d_.add_variable(family_, 0.0, a.most - a.least, std::move(product),
                               what + d_.operations().name_of(of) + "." + d_.name_of(at_));
    }

    model_builder& d_;
    family family_;
    event at_;
    sum total_;
};

} // namespace optpipe::formulation
