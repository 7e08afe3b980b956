#pragma once

#include "optpipe/core/compiled.hpp"
#include "optpipe/core/error.hpp"
#include "optpipe/core/quantity.hpp"
#include "optpipe/schedule/operation.hpp"
#include "optpipe/schedule/schedule.hpp"

#include <algorithm>
#include <cstddef>
#include <vector>

namespace optpipe {

/// The total planned and the total measured duration of events of one kind.
struct time_difference {
    std::size_t count = 0;
    duration planned{};
    duration measured{};
    /// The largest excess of a measured duration over the planned duration; below 0 if all events were faster.
    duration worst{};

    /// The average excess of the measured durations over the planned durations.
    [[nodiscard]] constexpr duration mean() const {
        return count == 0 ? duration{} : (measured - planned) / static_cast<double>(count);
    }
    constexpr void add(duration expected, duration took) {
        worst = count == 0 ? took - expected : std::max(worst, took - expected);
        ++count;
        planned += expected;
        measured += took;
    }
};

/// The difference for operations of one kind.
struct kind_difference : time_difference {
    operation_kind kind{};
    /// The largest delay of a start; below 0 if all operations started early.
    duration latest{};
};

/// For each kind, the differences over the operations of both schedules. Leaves out kinds that the schedules don't
/// share. Takes O(n) for n operations, and uses a table of the graph's size.
[[nodiscard]] std::vector<kind_difference> compare_kinds(const schedule& planned, const schedule& measured);

/// Reasons why `measured` can't be a measurement of `planned`: operations of only one schedule, repeated operations,
/// and invalid times. Durations and the order of operations may differ.
[[nodiscard]] std::vector<violation> measurement_violations(const schedule& planned, const schedule& measured);

} // namespace optpipe

#if OPTPIPE_DEFINES(schedule)

#include <array>
#include <string>
#include <utility>

namespace optpipe {

OPTPIPE_INLINE std::vector<kind_difference> compare_kinds(const schedule& planned, const schedule& measured) {
    const operation_numbering<any_graph> number{planned.graph};
    std::vector<const timed_operation*> plan(number.size(), nullptr);
    for (const auto& timed : planned.operations)
        if (number.contains(timed.op)) plan[number(timed.op)] = &timed;
    std::array<kind_difference, all_operation_kinds.size()> sums{};
    for (const auto& timed : measured.operations) {
        if (!number.contains(timed.op) || !plan[number(timed.op)]) continue;
        const auto& expected = *plan[number(timed.op)];
        auto& sum = sums[static_cast<std::size_t>(timed.op.kind)];
        const auto late = timed.start - expected.start;
        sum.kind = timed.op.kind;
        sum.latest = sum.count == 0 ? late : std::max(sum.latest, late);
        sum.add(expected.end - expected.start, timed.end - timed.start);
    }
    std::vector<kind_difference> result;
    for (const auto& sum : sums)
        if (sum.count > 0) result.push_back(sum);
    return result;
}

namespace detail {

/// For each operation of the graph, whether the schedule has it. Reports unknown operations, repeated operations, and
/// invalid times.
inline std::vector<bool> operations_in(const schedule& s, const operation_numbering<any_graph>& number,
                                       std::vector<violation>& found) {
    std::vector<bool> seen(number.size(), false);
    for (const auto& [op, start, end] : s.operations) {
        const auto reason = !number.contains(op) ? ": no such stage or microbatch"
                            : seen[number(op)]   ? " appears twice"
                            : start < duration{} ? " starts before 0"
                            : !(start <= end)    ? " ends before it starts"
                            : end.is_unlimited() ? " never ends"
                                                 : "";
        if (*reason != '\0') found.push_back({"operations", to_string(op) + reason});
        if (number.contains(op)) seen[number(op)] = true;
    }
    return seen;
}

} // namespace detail

OPTPIPE_INLINE std::vector<violation> measurement_violations(const schedule& planned, const schedule& measured) {
    const operation_numbering<any_graph> number{planned.graph};
    std::vector<violation> found;
    const auto seen = detail::operations_in(measured, number, found);
    std::vector<bool> expected(number.size(), false);
    for (const auto& timed : planned.operations) {
        if (!number.contains(timed.op)) continue;
        expected[number(timed.op)] = true;
        if (!seen[number(timed.op)]) found.push_back({"operations", to_string(timed.op) + " of the plan is missing"});
    }
    for (const auto& timed : measured.operations)
        if (number.contains(timed.op) && !expected[number(timed.op)])
            found.push_back({"operations", to_string(timed.op) + " isn't in the plan"});
    return found;
}

} // namespace optpipe
#endif
