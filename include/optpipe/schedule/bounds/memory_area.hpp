#pragma once

#include "optpipe/core/container.hpp"
#include "optpipe/core/quantity.hpp"
#include "optpipe/core/stop_check.hpp"
#include "optpipe/core/tolerance.hpp"
#include "optpipe/pipeline/paths.hpp"
#include "optpipe/pipeline/problem.hpp"
#include "optpipe/schedule/bounds/time_windows.hpp"
#include "optpipe/schedule/rules/transfer_resources.hpp"

#include <algorithm>
#include <cstddef>
#include <vector>

namespace optpipe {

namespace detail {

/// The largest sum of sizes from index `from` on that is at most `room`; sizes may repeat.
OPTPIPE_CONSTEXPR memory_size fill(const std::vector<memory_size>& sizes, std::size_t from, memory_size room,
                                   memory_size slack) {
    const auto size = sizes[from];
    const double most = times_in(size, room + slack);
    if (from + 1 == sizes.size()) return most * size;
    memory_size best{};
    for (double n = 0.0; n <= most && best < room; ++n) {
        const auto taken = n * size;
        best = std::max(best, taken + fill(sizes, from + 1, room - taken, slack));
    }
    return best;
}

} // namespace detail

/// The largest sum of given sizes that is at most `limit`; sizes may repeat. Memory above the result is never used,
/// because memory in use is a sum of sizes. Returns `limit` if there are too many sums.
[[nodiscard]] OPTPIPE_CONSTEXPR memory_size reachable_level(std::vector<memory_size> sizes, memory_size limit,
                                                            memory_size slack) {
    std::erase_if(sizes, [](memory_size a) { return a <= memory_size{}; });
    // Many sizes below the tolerance may add up to more than the tolerance.
    if (std::any_of(sizes.begin(), sizes.end(), [&](memory_size a) { return a <= slack; })) return limit;
    std::sort(sizes.begin(), sizes.end(), [](memory_size a, memory_size b) { return a > b; });
    sizes.erase(std::unique(sizes.begin(), sizes.end(), [](memory_size a, memory_size b) { return a == b; }),
                sizes.end());
    if (sizes.empty()) return {};
    constexpr double most_sums = 1e4;
    double sums = 1.0;
    for (std::size_t i = 0; i + 1 < sizes.size(); ++i)
        sums *= 1.0 + limit / sizes[i];
    constexpr double rounding = 1.0 + 1e-12;
    return sums > most_sums ? limit : std::min(limit, rounding * detail::fill(sizes, 0, limit, slack));
}

namespace detail {

/// The constraint activation · (stashes) + per_weight · (gradients without their weight gradient) ≤ `level`.
struct stash_capacity {
    double level;
    double per_weight;
};

/// All constraints of the form `stash_capacity` for a rank whose stages have equal stashes. The constraints are the
/// edges of the convex hull of the possible numbers of stashes and waiting weight gradients. If n weight gradients
/// wait, a stash and n − 1 weight stashes fit in memory during the last I. The result is empty if there would be very
/// many constraints.
OPTPIPE_CONSTEXPR std::vector<stash_capacity> capacities(memory_size activation, memory_size kept, memory_size limit,
                                                         memory_size slack) {
    struct corner {
        double stashes;
        double waiting;
    };
    constexpr double most_stashes = 1000.0;
    if (activation <= slack || kept <= slack || activation > limit || limit / kept > most_stashes) return {};
    const auto integral = [](double x) { return static_cast<double>(static_cast<std::size_t>(x)); };
    const double most_waiting = 1.0 + integral((limit - activation) / kept);
    std::vector<corner> hull;
    for (double x = 0.0; x <= limit / activation; x += 1.0) {
        const corner next{x, std::min(most_waiting, integral((limit - x * activation) / kept))};
        const auto below = [&](const corner& a, const corner& b) {
            return (b.waiting - a.waiting) * (next.stashes - a.stashes) <=
                   (next.waiting - a.waiting) * (b.stashes - a.stashes);
        };
        while (hull.size() > 1 && below(hull[hull.size() - 2], hull.back()))
            hull.pop_back();
        hull.push_back(next);
    }
    // The last corner has the most stashes, so no edge follows it.
    std::vector<stash_capacity> result;
    for (std::size_t i = 0; i + 1 < hull.size(); ++i) {
        const double fewer = hull[i].waiting - hull[i + 1].waiting;
        if (fewer <= 0.0) continue;
        const double each = (hull[i + 1].stashes - hull[i].stashes) / fewer;
        // A full backward counts as I and W, but holds its entire stash to the end. The constraint still holds, as a
        // waiting weight gradient counts as at most one stash.
        const double per_waiting = std::min(1.0, each);
        const double level = hull[i].stashes + each * hull[i].waiting;
        result.push_back({level * activation.value(), per_waiting * activation.value()});
    }
    return result;
}

/// Tests an objective by memory × time. Every stash occupies its rank for at least its lifespan. An offloaded stash is
/// absent only between the end of its offload and the start of its reload. The areas (memory × time) of all stashes
/// must fit under the limit within the window of the rank. The rank's copy engines and its link must have enough time
/// for the required transfers.
///
/// `fits(T)` is false only if no schedule has an objective of at most T.
template <pipeline_graph Graph> class memory_area_test {
public:
    /// `stop` is polled between the ranks. After a stop, the remaining ranks count as unlimited in memory.
    constexpr memory_area_test(const basic_problem<Graph>& p, stop_check stop = {})
        : p_{&p}, paths_{paths_of(p)}, stages_{stages_by_rank(p.graph)}, slack_{tolerance{}.at(p.memory_scale())} {
        const bool span = p.objective == objective_kind::span;
        // Every transfer lies between the first forward and the last gradient of stage 0.
        const auto outer = windows_for(p.rank_of(stage{0}));
        for (const rank r : p.graph.all_ranks())
            if (stop())
                ranks_.push_back({});
            else if (span)
                ranks_.push_back(describe(r, windows_for(r), outer));
            else
                ranks_.push_back(describe(r, outer, outer));
    }

    [[nodiscard]] constexpr bool bounds_anything() const {
        return std::any_of(ranks_.begin(), ranks_.end(), [](const rank_area& a) { return a.limited; });
    }

    [[nodiscard]] constexpr bool fits(duration objective) const {
        std::vector<double> link_out(p_->graph.ranks(), 0.0);
        std::vector<double> link_in(p_->graph.ranks(), 0.0);
        std::vector<double> link_window(p_->graph.ranks(), 0.0);
        for (const rank r : p_->graph.all_ranks()) {
            const auto& a = ranks_[r.position()];
            const auto needed = a.needed_saving(objective.value());
            if (needed <= 0.0) continue;
            const double window = (objective - a.transfer_head - a.transfer_tail).value();
            if (shares_engine(p_->transfer) &&
                least_time(a, needed, [](const offload_gain& w) { return w.out + w.in; }) > window)
                return false;
            const double out = least_time(a, needed, [](const offload_gain& w) { return w.out; });
            const double in = least_time(a, needed, [](const offload_gain& w) { return w.in; });
            if (std::max(out, in) > window) return false;
            const auto l = p_->transfer.link[r];
            link_out[l] += out;
            link_in[l] += in;
            link_window[l] = std::max(link_window[l], (objective - a.link_head - a.link_tail).value());
        }
        const bool half = shares_channel(p_->transfer);
        for (std::size_t l = 0; l < link_out.size(); ++l) {
            const double used = half ? link_out[l] + link_in[l] : std::max(link_out[l], link_in[l]);
            if (used > link_window[l]) return false;
        }
        return true;
    }

private:
    /// The memory × time saved by offloading one stash, and its transfer times.
    struct offload_gain {
        double saving;
        double out;
        double in;
    };
    /// An area (memory × time) that must fit under `level`, from the rank's first start on. The area ends at least
    /// `tail` before the end of the step or, for a span, before the end of the rank's work.
    struct demand {
        double area = 0.0;
        double level = 0.0;
        double tail = 0.0;
    };
    struct rank_area {
        bool limited = false;
        std::vector<demand> demands{};
        /// The largest area of a demand, which determines the rounding error of areas.
        double scale = 0.0;
        double head = 0.0;
        double count = 0.0;
        std::vector<offload_gain> ways{};
        duration transfer_head{};
        duration transfer_tail{};
        duration link_head{};
        duration link_tail{};

        constexpr double needed_saving(double objective) const {
            double most = 0.0;
            for (const auto& d : demands)
                most = std::max(most, d.area - d.level * (objective - head - d.tail));
            return most;
        }
    };

    /// The least transfer time on a resource that saves the area `needed`; unlimited if no transfers save it. The
    /// fractional knapsack's optimum is a lower bound on the time.
    template <class TimeOf> static constexpr double least_time(const rank_area& a, double needed, TimeOf time_of) {
        auto ways = a.ways;
        std::sort(ways.begin(), ways.end(), [&](const offload_gain& x, const offload_gain& y) {
            return x.saving * time_of(y) > y.saving * time_of(x);
        });
        double time = 0.0;
        for (const auto& w : ways) {
            const double some = std::min(a.count, needed / w.saving);
            time += some * time_of(w);
            needed -= some * w.saving;
            if (some < a.count) return time;
        }
        constexpr double rounding = 1e-12;
        return needed <= rounding * a.scale ? time : duration::unlimited().value();
    }

    constexpr time_windows<Graph> windows_for(rank r) const {
        if (p_->objective == objective_kind::span) return time_windows<Graph>::of_rank(*p_, r);
        return time_windows<Graph>::step(*p_);
    }

    constexpr rank_area describe(rank r, const time_windows<Graph>& windows, const time_windows<Graph>& outer) const {
        const auto& p = *p_;
        rank_area a;
        a.count = static_cast<double>(p.graph.microbatches());
        const auto last = p.graph.microbatches() - 1;
        std::vector<memory_size> stashes;
        std::vector<memory_size> all_stashes;
        double until_gradient = 0.0;
        double gradient_tail = 0.0;
        double last_tail = 0.0;
        double weight_time = 0.0;
        double weight_area = 0.0;
        bool first = true;
        a.transfer_head = a.transfer_tail = a.link_head = a.link_tail = duration::unlimited();
        for (const stage s : stages_[r]) {
            const auto& c = p.costs[s];
            const auto gradient = p.gradient_time(s);
            if (first) {
                a.head = windows.forward(s).head[0].value();
                gradient_tail = windows.gradient(s).tail[last].value();
                last_tail = p.split_backward ? 0.0 : gradient_tail;
                first = false;
            }
            const auto kept = std::min(c.activation, c.weight_stash);
            stashes.push_back(c.activation);
            all_stashes.push_back(c.activation);
            all_stashes.push_back(kept);
            until_gradient += a.count * c.activation.value() * paths_.lifespan[s].value();
            weight_time += a.count * c.backward_weight.value();
            if (p.split_backward) weight_area += a.count * kept.value() * c.backward_weight.value();
            const auto transfer = stash_transfer(p, s);
            if (!transfer) continue;
            const auto present = c.forward + transfer->offload + transfer->reload + gradient;
            if (const auto won = paths_.lifespan[s] - present; won > duration{} && c.activation > memory_size{})
                a.ways.push_back(
                    {c.activation.value() * won.value(), transfer->offload.value(), transfer->reload.value()});
            a.transfer_head = std::min(a.transfer_head, windows.forward(s).head[0] + c.forward);
            a.transfer_tail = std::min(a.transfer_tail, gradient + windows.gradient(s).tail[last]);
            a.link_head = std::min(a.link_head, outer.forward(s).head[0] + c.forward);
            a.link_tail = std::min(a.link_tail, gradient + outer.gradient(s).tail[last]);
        }
        if (first || p.memory_limit[r].is_unlimited() || until_gradient <= 0.0) return a;
        a.limited = true;
        const auto limit = p.memory_limit[r] + slack_;
        a.demands.push_back({until_gradient, reachable_level(stashes, limit, slack_).value(), gradient_tail});
        a.demands.push_back(
            {until_gradient + weight_area, reachable_level(all_stashes, limit, slack_).value(), last_tail});
        const auto equal = [](const std::vector<memory_size>& sizes, std::size_t step) {
            for (std::size_t i = step; i < sizes.size(); ++i)
                if (sizes[i] != sizes[i - step]) return false;
            return true;
        };
        if (p.split_backward && equal(stashes, 1) && equal(all_stashes, 2))
            for (const auto& c : capacities(stashes[0], all_stashes[1], limit, slack_))
                a.demands.push_back({until_gradient + c.per_weight * weight_time, c.level, last_tail});
        for (const auto& d : a.demands)
            a.scale = std::max(a.scale, d.area);
        return a;
    }

    const basic_problem<Graph>* p_;
    microbatch_paths<Graph::stage_extent> paths_;
    per_rank<bounded_vector<stage, Graph::stage_extent>, Graph::rank_extent> stages_;
    memory_size slack_;
    std::vector<rank_area> ranks_{};
};

} // namespace detail

/// The largest objective that memory × time refutes. The result is 0 without memory limits, and unlimited if no
/// schedule is valid. Contract: `validate` accepts the problem.
///
/// `stop` is polled. After a stop, the result is the largest objective that was refuted by then.
template <pipeline_graph Graph>
[[nodiscard]] constexpr duration memory_area_bound(const basic_problem<Graph>& p, stop_check stop = {}) {
    constexpr double precision = 1e-10; // far below any tolerance
    const detail::memory_area_test<Graph> test{p, stop};
    if (!test.bounds_anything()) return {};
    duration refuted{};
    duration open = 2.0 * p.serial_time(); // valid problems have a valid serial schedule, up to rounding
    if (!test.fits(open)) return duration::unlimited();
    while (open - refuted > precision * open && !stop()) {
        const auto middle = 0.5 * (open + refuted);
        if (test.fits(middle))
            open = middle;
        else
            refuted = middle;
    }
    return refuted;
}

} // namespace optpipe
