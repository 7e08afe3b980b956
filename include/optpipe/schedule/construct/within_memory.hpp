#pragma once

#include "optpipe/core/container.hpp"
#include "optpipe/core/quantity.hpp"
#include "optpipe/core/tolerance.hpp"
#include "optpipe/pipeline/least_memory.hpp"
#include "optpipe/pipeline/problem.hpp"
#include "optpipe/schedule/construct/lone_sequence.hpp"
#include "optpipe/schedule/construct/serial_order.hpp"
#include "optpipe/schedule/construct/uniform_storage.hpp"
#include "optpipe/schedule/operation.hpp"
#include "optpipe/schedule/schedule.hpp"

#include <algorithm>
#include <cstddef>
#include <optional>
#include <utility>
#include <vector>

namespace optpipe {
namespace detail {

/// A step in which each microbatch repeats the operations of the previous one a period later. The planned starts of the
/// first microbatch determine the order and the memory, but not the final times.
template <pipeline_graph Graph> class periodic_order {
public:
    constexpr explicit periodic_order(const basic_problem<Graph>& p)
        : p_{p}, slots_(2 * p.graph.stages()),
          by_phase_(slots_.size(), std::size_t{0}), slack_{tolerance{}.at(p.memory_scale())} {}

    /// The period is the work of the busiest rank, if memory allows. With more memory, microbatches start earlier, but
    /// at most R are in flight, as in 1F1B. Contract: one microbatch at a time fits in memory.
    constexpr basic_order<Graph> run() {
        constexpr int steps = 20; // number of halvings; 20 halvings reach a millionth
        const auto path = nominal_end(1.0);
        auto period = p_.busiest_work();
        const auto most = std::max(1.0, static_cast<double>(p_.graph.ranks()) * (period / path));
        if (place(period, 1.0)) {
            double stretch = 1.0;
            double too_much = most;
            if (place(period, most)) return order();
            for (int i = 0; i < steps; ++i) {
                const double middle = 0.5 * (stretch + too_much);
                (place(period, middle) ? stretch : too_much) = middle;
            }
            static_cast<void>(place(period, stretch));
            return order();
        }
        auto too_short = period;
        period = 2.0 * path; // with this period, microbatches run one at a time
        for (int i = 0; i < steps; ++i) {
            const auto middle = 0.5 * (too_short + period);
            (place(middle, 1.0) ? period : too_short) = middle;
        }
        static_cast<void>(place(period, 1.0));
        return order();
    }

private:
    /// A planned start time, as a number of periods and a remainder.
    struct slot {
        std::size_t periods = 0;
        duration phase{};
    };

    constexpr slot& forward_slot(stage s) { return slots_[s.position()]; }
    /// Gradients come after the forwards, in the order of the dependencies.
    constexpr slot& gradient_slot(stage s) { return slots_[slots_.size() - 1 - s.position()]; }

    /// Calls `visit(stage, is_forward, start)` along the path of the first microbatch.
    template <class Visit> constexpr duration walk(double stretch, Visit visit) const {
        duration now{};
        for (const stage s : p_.graph.all_stages()) {
            visit(s, true, now);
            now += stretch * (p_.costs[s].forward + (p_.is_last(s) ? duration{} : p_.hop(s, s.next())));
        }
        for (std::size_t i = p_.graph.stages(); i-- > 0;) {
            const stage s{i};
            visit(s, false, now);
            now += stretch * (p_.gradient_time(s) + (p_.is_first(s) ? duration{} : p_.hop(s, s.previous())));
        }
        return now;
    }
    constexpr duration nominal_end(double stretch) const {
        return walk(stretch, [](stage, bool, duration) {});
    }
    /// Places the operations of a microbatch. Returns whether the order fits in memory.
    constexpr bool place(duration period, double stretch) {
        walk(stretch, [&](stage s, bool is_forward, duration start) {
            auto& at = is_forward ? forward_slot(s) : gradient_slot(s);
            constexpr double most_periods = 1e15; // far more periods than there are microbatches
            at.periods = static_cast<std::size_t>(std::min(start / period, most_periods));
            at.phase = start - static_cast<double>(at.periods) * period;
        });
        per_rank<memory_size, Graph::rank_extent> held(p_.graph.ranks());
        auto grown = held; // the memory grows during a backward, and only one backward runs at a time
        for (const stage s : p_.graph.all_stages()) {
            const auto& from = forward_slot(s);
            const auto& to = gradient_slot(s);
            const auto most = to.periods - from.periods + (to.phase >= from.phase ? 1 : 0);
            held[p_.rank_of(s)] +=
                static_cast<double>(std::min(most, p_.graph.microbatches())) * p_.costs[s].activation;
            auto& growth = grown[p_.rank_of(s)];
            growth = std::max(growth, p_.held_in_backward(s, p_.costs[s].activation) - p_.costs[s].activation);
        }
        for (const rank r : p_.graph.all_ranks())
            if (held[r] + grown[r] > p_.memory_limit[r] + slack_) return false;
        return true;
    }
    constexpr basic_order<Graph> order() {
        for (std::size_t i = 0; i < by_phase_.size(); ++i)
            by_phase_[i] = i;
        std::sort(by_phase_.begin(), by_phase_.end(), [&](std::size_t a, std::size_t b) {
            return slots_[a].phase != slots_[b].phase ? slots_[a].phase < slots_[b].phase : a < b;
        });
        // Entries are sorted by period. A table of all periods could be much larger, because most periods may be empty.
        struct entry {
            std::size_t period;
            std::size_t position;
            std::size_t microbatch;
        };
        std::vector<entry> entries;
        entries.reserve(slots_.size() * p_.graph.microbatches());
        for (std::size_t k = 0; k < by_phase_.size(); ++k)
            for (const microbatch m : p_.graph.all_microbatches())
                entries.push_back({slots_[by_phase_[k]].periods + m.position(), k, m.position()});
        std::sort(entries.begin(), entries.end(), [](const entry& a, const entry& b) {
            return a.period != b.period ? a.period < b.period : a.position < b.position;
        });
        basic_order<Graph> result{p_.graph, {}};
        result.operations.reserve(3 * p_.graph.cells());
        for (const auto& e : entries) {
            const auto i = by_phase_[e.position];
            const microbatch m{e.microbatch};
            const bool is_forward = i < p_.graph.stages();
            const stage s{is_forward ? i : slots_.size() - 1 - i};
            const auto append = [&](const operation& op) { result.operations.push_back(op); };
            if (is_forward)
                append(forward(s, m));
            else
                run_backward(p_, forward(s, m), p_.costs[s].activation, append);
        }
        return result;
    }

    const basic_problem<Graph>& p_;
    /// The slots of the forwards in the order of the stages, followed by the slots of the gradients in the reverse
    /// order.
    std::vector<slot> slots_;
    std::vector<std::size_t> by_phase_;
    memory_size slack_;
};

} // namespace detail

namespace detail {

/// The problem in which each stage uses its option in `options`, and nothing is offloaded. Empty if an option always
/// offloads, or if one microbatch doesn't fit.
template <pipeline_graph Graph>
[[nodiscard]] constexpr std::optional<basic_problem<Graph>>
kept_problem(const basic_problem<Graph>& p, const storage_by_stage<Graph::stage_extent>& options) {
    auto kept = uniform_problem(p, options);
    for (const stage s : p.graph.all_stages()) {
        if (uniform_storage_of(p, s, options[s]).always_transfers) return std::nullopt;
        kept.set_stage(s, kept.costs[s]);
    }
    if (!fits_one_at_a_time(kept)) return std::nullopt;
    return kept;
}

} // namespace detail

/// An order from which a search may start, found in the time of a sort. Nothing is offloaded. Microbatches start at
/// equal intervals. As many are in flight as fit in memory. Microbatches use the option with the least recomputation
/// that all stages have and that fits. If no common option fits, the order is `one_at_a_time`. The order is valid if
/// `fits_one_at_a_time(p)` is true.
template <pipeline_graph Graph>
[[nodiscard]] constexpr basic_order<Graph> order_within_memory(const basic_problem<Graph>& p,
                                                               const least_memory_by_rank& least) {
    std::optional<basic_problem<Graph>> best;
    auto least_work = duration::unlimited();
    storage_by_stage<Graph::stage_extent> used(p.graph.stages());
    for (const auto& choice : uniform_choices(p)) {
        duration work{};
        for (const stage s : p.graph.all_stages())
            work += p.storage_of(s, choice.options[s]).extra_work();
        if (!(work < least_work)) continue;
        auto kept = detail::kept_problem(p, choice.options);
        if (!kept) continue;
        best = std::move(kept);
        least_work = work;
        used = choice.options;
    }
    if (!best) return one_at_a_time(p, least);
    return with_storage(p, used, detail::periodic_order<Graph>{*best}.run());
}

} // namespace optpipe
