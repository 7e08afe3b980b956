#pragma once

#include "optpipe/core/outcome.hpp"
#include "optpipe/core/stop_check.hpp"
#include "optpipe/core/tolerance.hpp"
#include "optpipe/pipeline/problem.hpp"
#include "optpipe/planner/modulo/parameters.hpp"
#include "optpipe/schedule/construct/interleave.hpp"
#include "optpipe/schedule/dispatch/gap_filling.hpp"
#include "optpipe/schedule/dispatch/lane_timing.hpp"
#include "optpipe/schedule/time/evaluate.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <functional>
#include <vector>

namespace optpipe::detail {

/// In each time slot, forwards move down the ranks by one stage, and gradients move up by one stage. Half of each
/// rank's slots are for forwards, and half for gradients. Microbatches in slots never wait for each other. The mean
/// distance between two microbatches, in slots, need not be integral.
struct wavefronts {
    /// The mean distance between the starts of two microbatches, in pairs of slots. 1 is the least distance.
    double spacing = 1.0;
    /// How weight gradients fill empty slots, and by how much they may exceed a gap.
    weight_filling filling{};
};

/// Whether wavefronts apply. Wavefronts apply if each rank has one stage and every stash is kept.
[[nodiscard]] inline bool applies_wavefronts(const problem& p) {
    return p.graph.stages() > 1 && one_stage_per_rank(p.graph) && is_described_by_costs(p) && !offloads_anything(p);
}

/// The densest spacing that memory and load would allow with slots of the mean length. The rank's memory must hold the
/// stashes of microbatches between forward and gradient.
[[nodiscard]] inline double least_spacing(const problem& p) {
    const auto stages = p.graph.stages();
    const auto slack = tolerance{}.at(p.memory_scale());
    duration all{};
    duration most{};
    double least = 1.0;
    for (const stage s : p.graph.all_stages()) {
        const auto& c = p.costs[s];
        all += c.forward + p.gradient_time(s);
        if (!p.is_last(s)) all += p.hop(s, s.next()) + p.hop(s.next(), s);
        most = std::max(most, c.work());
        const auto limit = p.memory_limit[p.rank_of(s)];
        if (limit.is_unlimited() || c.activation <= slack) continue;
        const auto stashes = std::floor((limit + slack) / c.activation);
        if (stashes >= 1.0) least = std::max(least, static_cast<double>(stages - s.position()) / stashes);
    }
    return std::max(least, static_cast<double>(stages) * (most / all));
}

/// The forwards and gradients of each rank, slot by slot.
[[nodiscard]] inline compute_lanes lanes_of(const problem& p, double spacing) {
    struct place {
        double slot;
        operation op;
    };
    const auto stages = p.graph.stages();
    compute_lanes lanes(p.graph.ranks());
    for (const stage s : p.graph.all_stages()) {
        std::vector<place> places;
        for (const microbatch m : p.graph.all_microbatches()) {
            const auto begin = 2.0 * std::floor(static_cast<double>(m.position()) * spacing);
            const auto gradient_slot = begin + static_cast<double>(2 * stages - 1 - s.position());
            places.push_back({begin + static_cast<double>(s.position()), forward(s, m)});
            places.push_back({gradient_slot, p.split_backward ? backward_input(s, m) : backward(s, m)});
        }
        std::sort(places.begin(), places.end(), [](const place& a, const place& b) { return a.slot < b.slot; });
        for (const auto& one : places)
            lanes[p.rank_of(s)].push_back(one.op);
    }
    return lanes;
}

/// The complete schedule of the step in slots, or the reason why there is none.
[[nodiscard]] inline outcome<schedule> complete_wavefronts(const problem& p, const wavefronts& how,
                                                           stop_check abandon = {}) {
    const auto lanes = lanes_of(p, how.spacing);
    const auto merged =
        p.split_backward ? fill_with_weights(p, lanes, p.memory_limit, how.filling) : interleave(p.graph, lanes);
    if (!merged) return merged.why();
    const auto filled = fill_gaps(p, *merged, p.memory_limit, abandon);
    if (abandon()) return was_stopped();
    return time_order(p, filled, abandon);
}

/// Tries several spacings on the complete step, and then several placements of weight gradients with the best spacing.
/// Every schedule is passed to `take`, which returns its objective. `stop` is polled between attempts, and `abandon` is
/// polled within an attempt. Returns the effort spent, in the units of `modulo_options`. At least one attempt is made.
inline std::size_t search_wavefronts(const problem& p, std::size_t effort,
                                     const std::function<duration(const schedule&)>& take, stop_check stop,
                                     const wavefront_parameters& with = {}, stop_check abandon = {}) {
    const auto stages = static_cast<double>(p.graph.stages());
    const auto least = least_spacing(p);
    const std::size_t cost = with.attempt_effort * p.graph.cells();
    std::size_t spent = 0;
    wavefronts best{least, {.share = with.first_fill}};
    auto best_value = duration::unlimited();
    const auto attempt = [&](const wavefronts& how) {
        if (stop() || (spent > 0 && spent + cost > effort)) return;
        spent += cost;
        const auto completed = complete_wavefronts(p, how, abandon);
        const auto value = completed ? take(*completed) : duration::unlimited();
        if (!(value < best_value)) return;
        best_value = value;
        best = how;
    };
    for (const double more_slots : with.more_slots)
        attempt({least * (1.0 + more_slots / stages), {.share = with.first_fill}});
    for (const double share : with.fills)
        if (p.split_backward) attempt({best.spacing, {share}});
    return spent;
}

} // namespace optpipe::detail
