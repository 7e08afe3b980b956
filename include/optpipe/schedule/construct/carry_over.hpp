#pragma once

#include "optpipe/core/compiled.hpp"
#include "optpipe/core/outcome.hpp"
#include "optpipe/pipeline/problem.hpp"
#include "optpipe/schedule/operation.hpp"
#include "optpipe/schedule/schedule.hpp"

#include <cstddef>
#include <optional>
#include <vector>

namespace optpipe {

/// An order that was made for one draw of microbatches, and data on the draw.
struct drawn_order {
    std::vector<operation> operations{};
    /// The duration of all computations on each microbatch, in any unit. Recomputation ahead of a backward is left out.
    std::vector<double> work{};
    /// The number of slices of each sequence, in the order of the microbatches.
    std::vector<std::size_t> slices{};
};

/// Converts the order of another draw to an order of `p`. The sequences of `p` and of the draw are ranked by number of
/// slices, then by work. The k-th sequence of `p` replaces the draw's k-th sequence, with the same storage options.
/// Slices are matched by position. The additional slices of a sequence in `p` all replace the last slice of the draw's
/// sequence. A waiting rank runs later operations first if the step gets shorter (`order_dispatcher`). Empty if the
/// numbers of sequences differ, if the order isn't executable, or if it lacks memory.
[[nodiscard]] std::optional<order> carry_over(const problem& p, const drawn_order& of);

/// Computes the times of a schedule with the costs of this problem. The schedule was made for other costs, or for
/// another draw of microbatches. Two orders are tried: the given order, and one with the microbatches matched by their
/// durations. The better order is used. A valid schedule is returned unchanged. Only the given order is tried if the
/// problem has pairs or no factors. If neither order gives a valid schedule, returns the refusal of `retime`.
[[nodiscard]] outcome<schedule> carry_over(const problem& p, const schedule& s);

} // namespace optpipe

#if OPTPIPE_DEFINES(schedule)
#include "optpipe/pipeline/sequences.hpp"
#include "optpipe/schedule/construct/chain_problem.hpp"
#include "optpipe/schedule/construct/follow_storage.hpp"
#include "optpipe/schedule/dispatch/dispatch_search.hpp"
#include "optpipe/schedule/dispatch/order_dispatcher.hpp"
#include "optpipe/schedule/time/evaluate.hpp"
#include "optpipe/schedule/time/measure.hpp"
#include "optpipe/schedule/time/validate.hpp"

#include <algorithm>
#include <numeric>
#include <utility>

namespace optpipe {
namespace detail {

/// A sequence of a draw: its first microbatch, number of slices, and total duration of computations.
struct drawn_sequence {
    std::size_t first = 0;
    std::size_t slices = 0;
    double work = 0.0;
};

/// The sequences of a draw, sorted by number of slices, then by work.
inline std::vector<drawn_sequence> ranked_sequences(const std::vector<std::size_t>& slices,
                                                    const std::vector<double>& work) {
    std::vector<drawn_sequence> all;
    std::size_t first = 0;
    for (const auto count : slices) {
        all.push_back({first, count, 0.0});
        for (std::size_t k = 0; k < count && first < work.size(); ++k)
            all.back().work += work[first++];
    }
    std::stable_sort(all.begin(), all.end(), [](const drawn_sequence& a, const drawn_sequence& b) {
        return a.slices != b.slices ? a.slices < b.slices : a.work < b.work;
    });
    return all;
}

inline std::vector<std::size_t> slices_of(const problem& p) {
    std::vector<std::size_t> counts;
    for (const auto& slices : sequences_of(p))
        counts.push_back(slices.size());
    return counts;
}

inline std::vector<double> microbatch_work(const problem& p) {
    std::vector<double> work;
    for (const microbatch m : p.graph.all_microbatches())
        work.push_back(work_of(p, {m}).value());
    return work;
}

/// For each microbatch of the draw, its replacements in `p`. The last slice of a sequence in the draw may be replaced
/// by several microbatches.
inline std::vector<std::vector<microbatch>> matched_microbatches(const problem& p, const drawn_order& of) {
    const auto from = ranked_sequences(of.slices, of.work);
    const auto to = ranked_sequences(slices_of(p), microbatch_work(p));
    std::vector<std::vector<microbatch>> match(of.work.size());
    for (std::size_t i = 0; i < to.size(); ++i)
        for (std::size_t k = 0; k < to[i].slices; ++k)
            match[from[i].first + std::min(k, from[i].slices - 1)].push_back(microbatch{to[i].first + k});
    return match;
}

/// Replaces each operation on a microbatch m by operations on the microbatches `match[m]`.
inline std::vector<operation> with_microbatches(const std::vector<operation>& all,
                                                const std::vector<std::vector<microbatch>>& match) {
    std::vector<operation> result;
    result.reserve(all.size());
    for (const auto& of : all)
        for_each_slice(of, match[of.microbatch.position()], [&](const operation& op) { result.push_back(op); });
    return result;
}

/// The draw for which the schedule was made, judging by the durations of its operations. The draw has the sequences of
/// `p`. Empty if the graphs differ in stages or microbatches.
inline std::optional<drawn_order> draw_of(const problem& p, const schedule& s) {
    if (s.graph.stages() != p.graph.stages() || s.graph.microbatches() != p.graph.microbatches()) return std::nullopt;
    drawn_order of{{}, std::vector<double>(p.graph.microbatches(), 0.0), slices_of(p)};
    const auto sorted = order_of(s);
    of.operations.assign(sorted.operations.begin(), sorted.operations.end());
    for (const auto& timed : s.operations)
        if (!is_transfer(timed.op.kind) && timed.op.kind != operation_kind::recompute &&
            timed.op.microbatch.position() < of.work.size())
            of.work[timed.op.microbatch.position()] += (timed.end - timed.start).value();
    return of;
}

/// Whether `p` has all operations of the order and equally many sequences, and the draw has no empty sequence.
inline bool is_like(const problem& p, const drawn_order& of) {
    const auto is_known = [&](const operation& op) {
        return op.stage.position() < p.graph.stages() && op.microbatch.position() < of.work.size() &&
               is_possible(p, op);
    };
    return std::all_of(of.operations.begin(), of.operations.end(), is_known) &&
           std::find(of.slices.begin(), of.slices.end(), std::size_t{0}) == of.slices.end() &&
           std::accumulate(of.slices.begin(), of.slices.end(), std::size_t{0}) == of.work.size() &&
           of.slices.size() == slices_of(p).size();
}

/// The best order found by replacing the microbatches of the drawn order with those of `p`. Empty if no order was
/// found.
inline best_order<any_graph> best_match(const problem& p, const drawn_order& of) {
    best_order<any_graph> best{p};
    if (!is_like(p, of)) return best;
    auto matched = with_microbatches(of.operations, matched_microbatches(p, of));
    matched = follow_storage(p, matched, storage_in_use(p, matched));
    const auto dispatch = [&](const order_dispatch_options& options) {
        best.offer({p.graph, order_dispatcher<any_graph>{p, matched, options}.run()});
    };
    best.offer({p.graph, {matched.begin(), matched.end()}});
    if (!best.found()) {
        const bool offloads =
            std::any_of(matched.begin(), matched.end(), [](const auto& op) { return is_transfer(op.kind); });
        for (const auto window : memory_windows) {
            dispatch({window, 0.0});
            if (!offloads) dispatch({window, 0.0, true});
        }
        if (best.found()) matched.assign((*best).operations.begin(), (*best).operations.end());
    }
    for (const auto& options : order_dispatch_choices)
        dispatch(options);
    return best;
}

} // namespace detail

OPTPIPE_INLINE std::optional<order> carry_over(const problem& p, const drawn_order& of) {
    auto best = detail::best_match(p, of);
    return best.found() ? std::optional{std::move(best).take()} : std::nullopt;
}

OPTPIPE_INLINE outcome<schedule> carry_over(const problem& p, const schedule& s) {
    auto as_is = retime(p, s);
    if (!p.microbatches.has_factors() || !p.overlaps.empty() || (as_is && as_is->operations == s.operations))
        return as_is;
    const auto of = detail::draw_of(p, s);
    if (!of) return as_is;
    auto best = detail::best_match(p, *of);
    if (!best.found() || (as_is && best.value() >= objective_of(p, *as_is))) return as_is;
    return time_order(p, std::move(best).take());
}

} // namespace optpipe
#endif
