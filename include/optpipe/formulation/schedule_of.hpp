#pragma once

#include "optpipe/core/contract.hpp"
#include "optpipe/core/outcome.hpp"
#include "optpipe/formulation/formulate.hpp"
#include "optpipe/formulation/meaning.hpp"
#include "optpipe/formulation/operation_table.hpp"
#include "optpipe/formulation/plan_times.hpp"
#include "optpipe/schedule/evaluate.hpp"
#include "optpipe/schedule/schedule.hpp"
#include "optpipe/schedule/validate.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <span>
#include <utility>
#include <vector>

namespace optpipe::formulation {

/// The operations of a plan in the order of their starts; starts that differ by rounding alone count as equal.
[[nodiscard]] inline order order_of(const operation_table& t, const plan_times& times) {
    constexpr double same = 1e-7;
    const double grain = same * t.task().serial_time().value();
    schedule planned;
    planned.graph = t.task().graph;
    for (operation_id a = 0; a < t.size(); ++a) {
        const cell c = t.cell_of(a);
        const bool takes_place = !t.is_transfer(a) || times.travels[c] != 0;
        const bool is_part = t.role_of(a) == role::weight && times.is_full[c] != 0;
        if (!t.exists(a) || !takes_place || is_part) continue;
        auto op = t.operation_of(a);
        double length = t.length(a);
        if (t.role_of(a) == role::gradient && times.is_full[c] != 0) {
            op.kind = operation_kind::backward;
            length = t.costs_of(a).backward().value();
        }
        const double start = grain * std::round(times.start[a] / grain);
        planned.operations.push_back({op, duration{start}, duration{start + length}});
    }
    return optpipe::order_of(planned);
}

/// The times that a point of the model gives, up to its tolerance.
[[nodiscard]] inline plan_times times_of(const formulated& f, std::span<const double> values) {
    const auto& t = *f.operations;
    plan_times times{std::vector<double>(t.size(), 0.0), std::vector<unsigned char>(t.cells(), 0),
                     std::vector<unsigned char>(t.cells(), 0)};
    constexpr double half = 0.5;
    for (std::size_t j = 0; j < f.meanings.size(); ++j) {
        const auto& m = f.meanings[j];
        if (m.what == meaning::kind::end_time) times.start[m.op] = values[j] - t.length(m.op);
        if (m.what == meaning::kind::travels) times.travels[m.op] = values[j] > half ? 1 : 0;
        if (m.what == meaning::kind::is_full) times.is_full[m.op] = values[j] > half ? 1 : 0;
    }
    return times;
}

/// Gives transfers that belong to no microbatch to the first ones that they fit, stage by stage; the rest is dropped.
inline void name_transfers(const operation_table& t, plan_times& times) {
    constexpr double same = 1e-6;
    const double slack = same * t.task().serial_time().value();
    for (const stage s : t.task().graph.all_stages()) {
        if (!t.may_travel(s)) continue;
        const auto old = times;
        std::size_t next = 0;
        for (std::size_t m = 0; m < t.microbatches(); ++m)
            times.travels[t.cell_at(s, m)] = 0;
        for (std::size_t trip = 0; trip < t.microbatches(); ++trip) {
            const cell from = t.cell_at(s, trip);
            if (old.travels[from] == 0) continue;
            const auto out = t.id(role::offload, from), in = t.id(role::reload, from);
            const double back = old.start[in] + t.length(in);
            const auto comes_too_soon = [&](std::size_t m) {
                return old.start[t.id(role::gradient, t.cell_at(s, m))] + slack < back;
            };
            while (next < t.microbatches() && comes_too_soon(next))
                ++next;
            if (next == t.microbatches()) break;
            const auto f = t.id(role::forward, t.cell_at(s, next));
            if (old.start[f] + t.length(f) > old.start[out] + slack) continue;
            const cell to = t.cell_at(s, next++);
            times.travels[to] = 1;
            times.start[t.id(role::offload, to)] = old.start[out];
            times.start[t.id(role::reload, to)] = old.start[in];
        }
    }
}

/// The schedule of a plan: its order, with the times that `time_order` gives it, which are never worse. Refused where
/// the plan's times don't fit together.
[[nodiscard]] inline outcome<schedule> schedule_of(const operation_table& t, const plan_times& times) {
    auto timed = time_order(t.task(), order_of(t, times));
    if (timed && !is_valid(t.task(), *timed)) {
        refusal why;
        why.reason = refusal_reason::not_executable;
        why.sentence = "the times stand for no valid schedule";
        return why;
    }
    return timed;
}
/// The schedule that a feasible point of the model stands for; of a pooled model there may be none.
[[nodiscard]] inline outcome<schedule> schedule_of(const formulated& f, std::span<const double> values) {
    OPTPIPE_EXPECT(values.size() == f.meanings.size(), "schedule_of: one value per variable of the model");
    auto times = times_of(f, values);
    if (f.is_pooled) name_transfers(*f.operations, times);
    return schedule_of(*f.operations, times);
}

} // namespace optpipe::formulation
