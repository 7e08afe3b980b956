#pragma once

#include "optpipe/core/compiled.hpp"
#include "optpipe/core/outcome.hpp"
#include "optpipe/formulation/formulate.hpp"
#include "optpipe/formulation/operation_table.hpp"
#include "optpipe/formulation/plan_times.hpp"
#include "optpipe/schedule/schedule.hpp"

#include <span>

namespace optpipe::formulation {

/// The operations of a plan, sorted by start. Starts that differ only by rounding count as equal.
[[nodiscard]] order order_of(const operation_table& t, const plan_times& times);

/// The plan that a point of the model represents. The plan's times have the numerical errors of the point.
[[nodiscard]] plan_times times_of(const formulated& f, std::span<const double> values);

/// Assigns each pooled transfer to the first microbatch that fits, stage by stage. Transfers that fit no microbatch are
/// dropped.
void name_transfers(const operation_table& t, plan_times& times);

/// The schedule with the plan's order and the times of `time_order`. Refused if the plan's times are inconsistent.
[[nodiscard]] outcome<schedule> schedule_of(const operation_table& t, const plan_times& times);
/// The schedule that a feasible point of the model represents. A point of a pooled model may not represent a schedule.
[[nodiscard]] outcome<schedule> schedule_of(const formulated& f, std::span<const double> values);

} // namespace optpipe::formulation

#if OPTPIPE_DEFINES(formulation)
#include "optpipe/core/contract.hpp"
#include "optpipe/formulation/meaning.hpp"
#include "optpipe/schedule/time/evaluate.hpp"
#include "optpipe/schedule/time/validate.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <utility>
#include <vector>

namespace optpipe::formulation {

OPTPIPE_INLINE order order_of(const operation_table& t, const plan_times& times) {
    constexpr double same = 1e-7;
    const double resolution = same * t.problem().serial_time().value();
    schedule planned;
    planned.graph = t.problem().graph;
    for (operation_id a = 0; a < t.size(); ++a) {
        if (!times.takes_place(t, a)) continue;
        const auto op = times.operation_of(t, a);
        const duration start{resolution * std::round(times.start[a] / resolution)};
        planned.operations.push_back({op, start, start + duration_of(t.problem(), op)});
    }
    return optpipe::order_of(planned);
}

OPTPIPE_INLINE plan_times times_of(const formulated& f, std::span<const double> values) {
    const auto& t = *f.operations;
    plan_times times{t};
    constexpr double half = 0.5;
    for (std::size_t j = 0; j < f.meanings.size(); ++j) {
        const auto& m = f.meanings[j];
        const bool is_set = values[j] > half;
        if (m.what == meaning::kind::is_full) times.is_full[m.op] = is_set ? 1 : 0;
        if (m.what == meaning::kind::chosen && is_set) times.storage[m.op] = static_cast<storage_index>(m.other);
    }
    for (std::size_t j = 0; j < f.meanings.size(); ++j)
        if (const auto& m = f.meanings[j]; m.what == meaning::kind::end_time)
            times.start[m.op] = values[j] - t.length(m.op, times.storage[t.cell_of(m.op)]);
    return times;
}

OPTPIPE_INLINE void name_transfers(const operation_table& t, plan_times& times) {
    constexpr double same = 1e-6;
    const double slack = same * t.problem().serial_time().value();
    for (const stage s : t.problem().graph.all_stages()) {
        if (!t.may_offload(s)) continue;
        const auto old = times;
        std::size_t next = 0;
        for (std::size_t m = 0; m < t.microbatches(); ++m)
            times.storage[t.cell_at(s, m)] = t.options(s).front();
        for (std::size_t transfer_pair = 0; transfer_pair < t.microbatches(); ++transfer_pair) {
            const cell from = t.cell_at(s, transfer_pair);
            if (!old.is_offloaded(t, from)) continue;
            const auto out = t.id(role::offload, from), in = t.id(role::reload, from);
            const double back = old.start[in] + t.length(in);
            const auto starts_too_early = [&](std::size_t m) {
                return old.start[t.id(role::gradient, t.cell_at(s, m))] + slack < back;
            };
            while (next < t.microbatches() && starts_too_early(next))
                ++next;
            if (next == t.microbatches()) break;
            const auto f = t.id(role::forward, t.cell_at(s, next));
            if (old.start[f] + t.length(f) > old.start[out] + slack) continue;
            const cell to = t.cell_at(s, next++);
            times.storage[to] = old.storage[from];
            times.start[t.id(role::offload, to)] = old.start[out];
            times.start[t.id(role::reload, to)] = old.start[in];
        }
    }
}

OPTPIPE_INLINE outcome<schedule> schedule_of(const operation_table& t, const plan_times& times) {
    auto timed = time_order(t.problem(), order_of(t, times));
    if (timed && !is_valid(t.problem(), *timed)) {
        refusal why;
        why.reason = refusal_reason::not_executable;
        why.sentence = "the times are those of no valid schedule";
        return why;
    }
    return timed;
}

OPTPIPE_INLINE outcome<schedule> schedule_of(const formulated& f, std::span<const double> values) {
    OPTPIPE_EXPECT(values.size() == f.meanings.size(), "schedule_of: one value per variable of the model");
    auto times = times_of(f, values);
    if (f.is_pooled) name_transfers(*f.operations, times);
    return schedule_of(*f.operations, times);
}

} // namespace optpipe::formulation
#endif
