#pragma once

#include "optpipe/core/compiled.hpp"
#include "optpipe/core/outcome.hpp"
#include "optpipe/formulation/formulate.hpp"
#include "optpipe/schedule/schedule.hpp"

#include <vector>

namespace optpipe::formulation {

/// The point of the model that represents a valid schedule within its horizon. The point passes `milp::check`, and has
/// the schedule's objective. The objective may be smaller if the model lacks a storage option of the schedule. Refused
/// (`does_not_apply`) if the schedule needs overtaking and the model excludes it.
[[nodiscard]] outcome<std::vector<double>> values_of(const formulated& f, const schedule& s);

} // namespace optpipe::formulation

#if OPTPIPE_DEFINES(formulation)
#include "optpipe/formulation/normal_form.hpp"
#include "optpipe/formulation/plan_times.hpp"
#include "optpipe/schedule/construct/follow_storage.hpp"
#include "optpipe/schedule/rules/cells.hpp"
#include "optpipe/schedule/time/evaluate.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <tuple>

namespace optpipe::formulation {

/// Computes the value of each variable of the model for a schedule.
class valuation {
public:
    valuation(const formulated& f, const plan_times& times)
        : f_{f}, t_{*f.operations}, times_{times}, slack_{time_share * f.horizon} {}

    [[nodiscard]] std::vector<double> run() {
        values_.clear();
        for (const auto& m : f_.meanings)
            values_.push_back(value_of(m));
        return std::move(values_);
    }

private:
    static constexpr double time_share = 1e-9; // sums of durations may differ by this share of the time because of
                                               // rounding

    [[nodiscard]] double start(operation_id a) const { return times_.start[a]; }
    [[nodiscard]] double end(operation_id a) const { return start(a) + t_.length(a, times_.storage[t_.cell_of(a)]); }
    [[nodiscard]] double time(event e) const { return e.is_end ? end(e.op) : start(e.op); }

    [[nodiscard]] double value_of(const meaning& m) const {
        using kind = meaning::kind;
        switch (m.what) {
        case kind::objective: return objective();
        case kind::first_start: return first_start(rank{m.op});
        case kind::end_time: return end(m.op);
        case kind::is_full: return times_.is_full[m.op] != 0 ? 1.0 : 0.0;
        case kind::chosen: return times_.storage[m.op] == m.other ? 1.0 : 0.0;
        case kind::order: return start(m.op) < start(m.other) ? 1.0 : 0.0;
        case kind::transfer_order: return comes_first(m.op, m.other) ? 1.0 : 0.0;
        case kind::is_before: return time(m.first) <= time(m.then) + slack_ ? 1.0 : 0.0;
        case kind::product: return sum_of(m) * value_of(m.when);
        case kind::excess: break;
        }
        return std::max(0.0, std::round(sum_of(m)));
    }
    [[nodiscard]] double value_of(const literal& l) const {
        return l.constant + (l.is_constant() ? 0.0 : l.coefficient * values_[l.column.position()]);
    }
    [[nodiscard]] double sum_of(const meaning& m) const {
        double sum = m.constant;
        for (const auto& [factor, l] : m.parts)
            sum += factor * value_of(l);
        return sum;
    }
    [[nodiscard]] bool comes_first(operation_id a, operation_id b) const {
        if (t_.role_of(a) != t_.role_of(b)) return end(a) <= start(b) + slack_;
        return std::tuple{start(a), end(a), a} < std::tuple{start(b), end(b), b};
    }
    [[nodiscard]] double first_start(rank r) const {
        double first = milp::infinity;
        for (const auto a : t_.computations_on(r))
            first = std::min(first, start(a));
        return std::isfinite(first) ? first : 0.0;
    }
    [[nodiscard]] double objective() const {
        double longest = 0.0;
        for (const rank r : t_.problem().graph.all_ranks()) {
            const double first = t_.problem().objective == objective_kind::span ? first_start(r) : 0.0;
            for (const auto a : t_.computations_on(r))
                longest = std::max(longest, end(a) - first);
        }
        return longest;
    }

    const formulated& f_;
    const operation_table& t_;
    const plan_times& times_;
    double slack_;
    std::vector<double> values_;
};

/// The schedule, with each storage option replaced by an option of the model. After a change, operations start as early
/// as the new options allow, to stay within the model's horizon.
inline outcome<schedule> with_options_of_model(const operation_table& t, const schedule& s) {
    const auto& p = t.problem();
    auto changed = optpipe::order_of(s);
    const auto given = storage_in_use(p, changed.operations);
    auto used = given;
    const cell_numbering number{p.graph};
    for (const auto& op : changed.operations)
        used[number(op)] = t.replacement(op.stage, op.storage);
    if (used == given) return s;
    changed.operations = follow_storage(p, changed.operations, used);
    return time_order(p, changed);
}

OPTPIPE_INLINE outcome<std::vector<double>> values_of(const formulated& f, const schedule& s) {
    const auto known = with_options_of_model(*f.operations, s);
    if (!known) return known.why();
    const auto times = normal_form{f}.run(*known);
    if (!times) return times.why();
    return valuation{f, *times}.run();
}

} // namespace optpipe::formulation
#endif
