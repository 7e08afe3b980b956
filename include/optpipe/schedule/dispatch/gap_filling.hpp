#pragma once

#include "optpipe/core/container.hpp"
#include "optpipe/core/stop_check.hpp"
#include "optpipe/core/tolerance.hpp"
#include "optpipe/pipeline/problem.hpp"
#include "optpipe/schedule/construct/interleave.hpp"
#include "optpipe/schedule/dispatch/known_ends.hpp"
#include "optpipe/schedule/dispatch/lane_timing.hpp"
#include "optpipe/schedule/rules/dependencies.hpp"
#include "optpipe/schedule/schedule.hpp"
#include "optpipe/schedule/time/evaluate.hpp"
#include "optpipe/schedule/time/measure.hpp"

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

namespace optpipe {
namespace detail {

/// One pass over a schedule without transfers. Each gap gets the first later operation of the rank that is ready, fits,
/// and keeps the memory within the budget.
template <pipeline_graph Graph> class gap_filler {
public:
    constexpr gap_filler(const basic_problem<Graph>& p, const basic_schedule<Graph>& s,
                         const per_rank<memory_size, Graph::rank_extent>& budget)
        : p_{p}, budget_{budget}, ends_{p.graph}, own_(split_by_rank(p.graph, s.operations)),
          kinds_(p.graph.ranks()), time_slack_{time_slack(p, s)}, memory_slack_{tolerance{}.at(p.memory_scale())} {
        for (const auto& timed : s.operations)
            ends_.set(timed.op, timed.end);
        for (auto& own : own_)
            if (!std::is_sorted(own.begin(), own.end(), starts_before))
                std::sort(own.begin(), own.end(), starts_before);
        for (const stage at : p.graph.all_stages())
            kinds_[p.rank_of(at)] += 3;
    }

    /// Returns whether any operation moved. After a stop, only the first ranks have been processed.
    constexpr bool run(stop_check stop) {
        bool moved = false;
        for (const rank r : p_.graph.all_ranks())
            moved |= !stop() && fill(r);
        return moved;
    }
    constexpr compute_lanes lanes() const {
        compute_lanes lanes(own_.size());
        for (const rank r : own_.indices())
            for (const auto& timed : own_[r])
                lanes[r].push_back(timed.op);
        return lanes;
    }

private:
    constexpr bool fill(rank r) {
        auto& own = own_[r];
        bool moved = false;
        memory_size held{};
        duration free{};
        for (std::size_t i = 0; i < own.size(); ++i) {
            // The time before the first operation isn't a gap: a rank may start late.
            if (i > 0 && own[i].start - free > time_slack_) {
                const auto found = candidate(r, i, free, held);
                if (found < own.size()) {
                    pull(own, found, i, free);
                    moved = true;
                }
            }
            const auto effect = memory_effect_of(p_, own[i].op);
            held += effect.acquired_at_start;
            held -= effect.released_at_end;
            free = own[i].end;
        }
        return moved;
    }
    /// The index of the first operation, from i on, that can run in the gap before operation i. Only the next operation
    /// of each kind and stage is considered. The search looks at 12 operations per stage of the pipeline (F, I and W of
    /// four microbatches).
    constexpr std::size_t candidate(rank r, std::size_t i, duration from, memory_size held) const {
        const auto& own = own_[r];
        const auto gap = own[i].start - from;
        constexpr std::size_t depths = 4;
        constexpr std::size_t passes_each = 3;
        const auto last = std::min(own.size(), i + depths * passes_each * p_.graph.stages());
        std::vector<operation> passed;
        auto most = held;
        for (std::size_t j = i; j < last && passed.size() < kinds_[r]; ++j) {
            const auto& op = own[j].op;
            const auto effect = memory_effect_of(p_, op);
            const bool first_of_its_kind = std::none_of(passed.begin(), passed.end(), [&](const operation& other) {
                return other.stage == op.stage && other.kind == op.kind;
            });
            if (j > i && first_of_its_kind && own[j].end - own[j].start <= gap + time_slack_ &&
                input_time(p_, op, ends_) <= from + time_slack_ &&
                most + effect.acquired_at_start <= budget_[r] + memory_slack_)
                return j;
            if (first_of_its_kind) passed.push_back(op);
            held += effect.acquired_at_start;
            most = std::max(most, held);
            held -= effect.released_at_end;
        }
        return own.size();
    }
    constexpr void pull(std::vector<timed_operation>& own, std::size_t from, std::size_t to, duration start) {
        auto moving = own[from];
        moving.end = start + (moving.end - moving.start);
        moving.start = start;
        ends_.set(moving.op, moving.end);
        for (auto j = from; j > to; --j)
            own[j] = own[j - 1];
        own[to] = moving;
    }

    const basic_problem<Graph>& p_;
    const per_rank<memory_size, Graph::rank_extent>& budget_;
    known_ends ends_;
    per_rank<std::vector<timed_operation>> own_;
    /// Number of kinds of operations on the rank. F, I and W of each stage are separate kinds.
    per_rank<std::size_t, Graph::rank_extent> kinds_;
    duration time_slack_;
    memory_size memory_slack_;
};

} // namespace detail

/// Pulls operations ahead into the gaps of a schedule. The schedule has no transfers. Each operation starts as early as
/// its order allows. Passes are repeated until the step gets no shorter, or the filling is stopped. Pulling never makes
/// a rank exceed its budget. The result lists its operations in an order that respects all dependencies. Contract: as
/// for `lane_timer`.
template <pipeline_graph Graph>
[[nodiscard]] constexpr basic_schedule<Graph> fill_gaps(const basic_problem<Graph>& p, basic_schedule<Graph> given,
                                                        const per_rank<memory_size, Graph::rank_extent>& budget,
                                                        stop_check stop = {}) {
    constexpr std::size_t most_passes = 6; // the first passes gain most
    lane_timer<Graph> timer{p, p.memory_limit};
    auto value = objective_with_late_warm_up(p, given);
    for (std::size_t pass = 1; pass < most_passes && !stop(); ++pass) {
        detail::gap_filler<Graph> filler{p, given, budget};
        if (!filler.run(stop) || stop()) break;
        const auto timed = timer.run(filler.lanes());
        if (!timed || stop()) break;
        const auto next = objective_with_late_warm_up(p, **timed);
        if (next > value) break;
        value = next;
        given = **timed;
    }
    return given;
}
/// Pulls operations ahead into the gaps of an order without transfers. An order that `simulate` refuses is returned
/// unchanged. Contract: as for `lane_timer`.
template <pipeline_graph Graph>
[[nodiscard]] constexpr basic_order<Graph> fill_gaps(const basic_problem<Graph>& p, const basic_order<Graph>& given,
                                                     const per_rank<memory_size, Graph::rank_extent>& budget,
                                                     stop_check stop = {}) {
    if (stop()) return given;
    auto timed = simulate(p, given);
    if (!timed) return given;
    return listed_order(fill_gaps(p, *std::move(timed), budget, stop));
}

} // namespace optpipe
