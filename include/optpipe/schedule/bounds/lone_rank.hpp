#pragma once

#include "optpipe/core/compiled.hpp"
#include "optpipe/core/quantity.hpp"
#include "optpipe/core/stop_check.hpp"
#include "optpipe/pipeline/problem.hpp"

namespace optpipe {

/// Limit on the work of `lone_rank_bound`, counted in comparisons of times; up to half a second. Not tuned.
inline constexpr double lone_rank_work = 6e7;

/// A lower bound on the objective of every valid schedule, at least `known`. Each rank is considered alone: the bound
/// is the length of its shortest sequence of operations and transfers. The sequence respects memory, copy engines, and
/// the least waits for other ranks. The bound is strong for a few microbatches in little memory. With many microbatches
/// or much memory, the search seldom ends. Ranks with several stages aren't considered. Each rank gets an equal share
/// of the remaining work. Contract: `validate` accepts the problem, which is plain.
///
/// Returns the bound found until `stop` returns true. Deterministic if `stop` never returns true.
[[nodiscard]] duration lone_rank_bound(const problem& p, duration known, stop_check stop = {},
                                       double work = lone_rank_work);

} // namespace optpipe

#if OPTPIPE_DEFINES(schedule)
#include "optpipe/core/tolerance.hpp"
#include "optpipe/pipeline/paths.hpp"
#include "optpipe/schedule/bounds/storage_relaxation.hpp"
#include "optpipe/schedule/bounds/time_windows.hpp"
#include "optpipe/schedule/rules/transfer_resources.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <utility>
#include <vector>

namespace optpipe {
namespace detail {

/// One rank with one stage, without the other ranks. Every stash is kept, or offloaded as a whole.
struct lone_rank {
    std::size_t microbatches = 0;
    double forward = 0.0;
    double gradient = 0.0;
    /// 0 if the gradient is a B.
    double weight = 0.0;
    /// The least time from the end of F to the start of the gradient.
    double wait = 0.0;
    std::optional<std::pair<double, double>> transfer{};
    bool one_transfer_at_a_time = false;
    double stash = 0.0;
    /// Memory that is held between I and W; no more than `stash`.
    double pending = 0.0;
    double limit = 0.0;
    /// The least times before the start of the k-th forward, and after the end of the k-th gradient.
    std::vector<double> heads{};
    std::vector<double> tails{};
};

/// Search for the shortest sequence of one rank.
///
/// Microbatches with the same option can exchange names: dependencies and memory only count operations that have
/// started or ended. Therefore each option's microbatches may go in FIFO order, and a list of kinds describes a
/// sequence. The operations of any schedule form a list, in the order of their starts. By induction, no operation
/// starts later than in the schedule if each starts as early as possible. Earlier operations end no later than in the
/// schedule, so lanes aren't busy longer, and no more memory is held.
///
/// A label stands for all lists with the same numbers of started operations. A label is dropped if another label with
/// the same numbers is no later in any time. An operation isn't added if a gradient, weight gradient or offload could
/// end before its start. Running the gradient, weight gradient or offload first only frees memory earlier.
///
/// Lists are extended by increasing length, so a label is compared with all its rivals before it is extended. Labels
/// that can't end the step by a ceiling are dropped, too. If no list is left, the bound is the least end above the
/// ceiling, and the ceiling rises.
class lone_rank_search {
public:
    lone_rank_search(const lone_rank& r, double known) : r_{r}, known_{known} {}

    /// A lower bound on the objective, at least `known`.
    double solve(double work, stop_check stop) {
        ceiling_ = known_;
        search(few_labels, work, stop);
        for (double step = 0.0; shortest_ > known_; step = std::max(first_step, 2.0 * step)) {
            ceiling_ = known_ * (1.0 + step);
            above_ = infinite;
            if (!search(all_labels, work, stop)) return known_;
            if (shortest_ < infinite) return std::max(known_, shortest_);
            if (above_ == infinite) return known_; // no sequence fits the memory; other bounds report it
            known_ = above_;
        }
        return known_;
    }
    [[nodiscard]] double done() const { return done_; }

private:
    enum move : std::size_t {
        kept_forward,
        offloaded_forward,
        kept_gradient,
        offloaded_gradient,
        weight,
        offload,
        reload,
        moves
    };
    /// Times of a label: the last start; the ends of the last computation, offload and reload; the least end of the
    /// step. Start times of gradients follow, in FIFO order: kept stashes first, then offloaded stashes. An end or time
    /// in the past is moved to the last start.
    enum time : std::size_t { now, compute, out, in, end, first_ready };
    using counts = std::array<std::uint32_t, moves + 1>;

    struct label {
        /// The number of times each move was made, followed by the index of the last computation.
        counts count{};
        std::vector<double> times{};
        /// The least end of the step.
        double bound = 0.0;
    };
    using level = std::map<counts, std::vector<label>>;

    /// Extends lists until they are complete, or until one is as short as the known bound. Each length keeps the `most`
    /// lists with the least bounds, and ties. Returns false if the search exceeds `work`, or if `stop` returns true.
    bool search(std::size_t most, double work, stop_check stop) {
        level open;
        next_ = {{}, std::vector<double>(first_ready, r_.heads.front())};
        add(open, next_);
        while (!open.empty() && shortest_ > known_) {
            level next;
            for (const auto& [count, labels] : open) {
                if (done_ >= work || stop()) return false;
                for (const auto& x : labels)
                    expand(next, x);
            }
            drop_worst(next, most);
            open = std::move(next);
        }
        return true;
    }
    static void drop_worst(level& all, std::size_t most) {
        if (most == all_labels) return;
        std::vector<double> bounds;
        for (const auto& [count, labels] : all)
            for (const auto& x : labels)
                bounds.push_back(x.bound);
        if (bounds.size() <= most) return;
        const auto last = bounds.begin() + static_cast<std::ptrdiff_t>(most) - 1;
        std::nth_element(bounds.begin(), last, bounds.end());
        for (auto& [count, labels] : all)
            labels.erase(std::remove_if(labels.begin(), labels.end(), [&](const label& x) { return x.bound > *last; }),
                         labels.end());
    }

    [[nodiscard]] static std::size_t forwards(const label& x) {
        return x.count[kept_forward] + x.count[offloaded_forward];
    }
    [[nodiscard]] static std::size_t gradients(const label& x) {
        return x.count[kept_gradient] + x.count[offloaded_gradient];
    }
    [[nodiscard]] std::size_t weights(const label& x) const { return r_.weight > 0.0 ? x.count[weight] : gradients(x); }
    [[nodiscard]] bool is_complete(const label& x) const { return weights(x) == r_.microbatches; }
    [[nodiscard]] static bool runs(const label& x, move m, double at) {
        return x.count[moves] == m && x.times[compute] > at;
    }
    [[nodiscard]] static bool runs_gradient(const label& x, double at) {
        return runs(x, kept_gradient, at) || runs(x, offloaded_gradient, at);
    }
    [[nodiscard]] static std::size_t kept(const label& x) { return x.count[kept_forward] - x.count[kept_gradient]; }

    [[nodiscard]] double memory(const label& x, double at) const {
        const std::size_t done = gradients(x) - (runs_gradient(x, at) ? 1 : 0);
        const std::size_t offloaded = x.count[offload] - (x.count[offload] > 0 && x.times[out] > at ? 1 : 0);
        const std::size_t full = forwards(x) + x.count[reload] - done - offloaded;
        const std::size_t pending = r_.weight > 0.0 ? done + (runs(x, weight, at) ? 1 : 0) - x.count[weight] : 0;
        return static_cast<double>(full) * r_.stash + static_cast<double>(pending) * r_.pending;
    }

    /// The earliest time for the move; empty if the move can't come next.
    [[nodiscard]] std::optional<double> earliest(const label& x, move m) const {
        const auto& t = x.times;
        const auto& n = x.count;
        switch (m) {
        case offloaded_forward:
            if (!r_.transfer) return {};
            [[fallthrough]];
        case kept_forward:
            if (forwards(x) == r_.microbatches) return {};
            return with_room(x, std::max(t[compute], r_.heads[forwards(x)]));
        case kept_gradient:
            if (kept(x) == 0) return {};
            return std::max(t[compute], t[first_ready]);
        case offloaded_gradient: {
            if (n[offloaded_gradient] == n[reload]) return {};
            const double reloaded = n[offloaded_gradient] + 1 == n[reload] ? t[in] : t[now];
            return std::max({t[compute], reloaded, t[first_ready + kept(x)]});
        }
        case weight:
            if (n[weight] == gradients(x) || r_.weight == 0.0) return {};
            return t[compute];
        case offload: {
            if (n[offload] == n[offloaded_forward]) return {};
            const bool waits = n[offload] + 1 == n[offloaded_forward] && n[moves] == offloaded_forward;
            return std::max({t[out], r_.one_transfer_at_a_time ? t[in] : t[now], waits ? t[compute] : t[now]});
        }
        case reload: {
            if (n[reload] == n[offload]) return {};
            const bool waits = r_.one_transfer_at_a_time || n[reload] + 1 == n[offload];
            return with_room(x, std::max(t[in], waits ? t[out] : t[now]));
        }
        case moves: break;
        }
        return {};
    }
    /// The first time from `at` on at which a stash fits.
    [[nodiscard]] std::optional<double> with_room(const label& x, double at) const {
        std::array<double, 3> times{at, std::max(at, x.times[compute]), std::max(at, x.times[out])};
        std::sort(times.begin(), times.end());
        for (const double t : times)
            if (memory(x, t) + r_.stash <= r_.limit) return t;
        return {};
    }

    [[nodiscard]] double length(move m) const {
        switch (m) {
        case kept_forward:
        case offloaded_forward: return r_.forward;
        case kept_gradient:
        case offloaded_gradient: return r_.gradient;
        case weight: return r_.weight;
        case offload: return r_.transfer->first;
        case reload: return r_.transfer->second;
        case moves: break;
        }
        return 0.0;
    }
    [[nodiscard]] static time lane(move m) { return m == offload ? out : m == reload ? in : compute; }

    void expand(level& next, const label& x) {
        std::array<std::optional<double>, moves> at;
        double freed = infinite; // the first end of an operation that only frees memory
        for (std::size_t i = 0; i < moves; ++i) {
            const auto m = static_cast<move>(i);
            at[i] = earliest(x, m);
            if (at[i] && m != kept_forward && m != offloaded_forward && m != reload)
                freed = std::min(freed, *at[i] + length(m));
        }
        for (std::size_t i = 0; i < moves; ++i) {
            const auto m = static_cast<move>(i);
            if (!at[i] || *at[i] > freed) continue;
            next_ = x;
            make(next_, m, *at[i]);
            add(next, next_);
        }
    }
    /// Makes a move that starts at `at`.
    void make(label& x, move m, double at) const {
        auto& t = x.times;
        const auto place = t.begin() + first_ready;
        const auto kept_end = place + static_cast<std::ptrdiff_t>(kept(x));
        const double last = at + length(m);
        t[now] = at;
        t[lane(m)] = last;
        if (lane(m) == compute) x.count[moves] = static_cast<std::uint32_t>(m);
        if (m == kept_gradient || m == offloaded_gradient) {
            t[end] = std::max(t[end], last + r_.tails[gradients(x)]);
            t.erase(m == kept_gradient ? place : kept_end);
        }
        if (m == kept_forward) t.insert(kept_end, last + r_.wait);
        if (m == offloaded_forward) t.push_back(last + r_.wait);
        ++x.count[m];
        for (auto& each : t)
            each = std::max(each, at);
    }

    /// Adds a label to its level. Drops a label that is too late or that another label can replace.
    void add(level& next, label& x) {
        x.bound = std::max(x.bound, bound_of(x));
        if (x.bound > std::min(ceiling_, shortest_)) {
            above_ = std::min(above_, x.bound);
            return;
        }
        if (is_complete(x)) {
            shortest_ = std::min(shortest_, x.bound);
            return;
        }
        auto& same = next[x.count];
        done_ += static_cast<double>((same.size() + moves) * x.times.size());
        const auto is_no_later = [](const label& a, const label& b) {
            return std::equal(a.times.begin(), a.times.end(), b.times.begin(),
                              [](double one, double other) { return one <= other; });
        };
        if (std::any_of(same.begin(), same.end(), [&](const label& other) { return is_no_later(other, x); })) return;
        same.erase(std::remove_if(same.begin(), same.end(), [&](const label& other) { return is_no_later(x, other); }),
                   same.end());
        same.push_back(x);
    }

    /// The least end of a step that begins with the label.
    [[nodiscard]] double bound_of(const label& x) const {
        const auto left = [&](std::size_t done) { return static_cast<double>(r_.microbatches - done); };
        const double until_gradients =
            x.times[compute] + left(forwards(x)) * r_.forward + left(gradients(x)) * r_.gradient;
        double least = std::max(x.times[end], until_gradients + left(weights(x)) * r_.weight);
        if (gradients(x) < r_.microbatches) least = std::max(least, until_gradients + r_.tails.back());
        if (forwards(x) < r_.microbatches)
            least = std::max(least, std::max(x.times[compute], r_.heads[forwards(x)]) + r_.forward + r_.wait +
                                        r_.gradient + r_.tails.back());
        return std::max(least, x.times[now] + time_for_memory(x));
    }
    /// Time needed by started microbatches and all weight gradients: stashes in memory, pending weight gradients in
    /// memory, and the copy engine.
    struct needs {
        double stashes = 0.0;
        double pending = 0.0;
        double copies = 0.0;
    };
    [[nodiscard]] needs needs_of(const label& x) const {
        const auto& t = x.times;
        const auto& n = x.count;
        const double at = t[now];
        const auto to_offload = static_cast<double>(n[offloaded_forward] - n[offload]);
        const auto to_reload = static_cast<double>(n[offload] - n[reload]);
        const auto reloaded = static_cast<double>(n[reload] - n[offloaded_gradient]);
        needs all;
        if (r_.transfer)
            all.copies = to_offload * time_of_copies() + to_reload * r_.transfer->second + (t[out] - at) + (t[in] - at);
        all.stashes = all.copies + (to_offload + to_reload + reloaded) * r_.gradient;
        for (std::size_t i = 0; i < kept(x); ++i)
            all.stashes += t[first_ready + i] - at + r_.gradient;
        if (runs_gradient(x, at) || runs(x, offloaded_forward, at)) all.stashes += t[compute] - at;
        all.pending = static_cast<double>(r_.microbatches - weights(x)) * r_.weight;
        if (runs(x, weight, at)) all.pending += t[compute] - at;
        return all;
    }
    [[nodiscard]] double time_of_copies() const { return r_.transfer ? r_.transfer->first + r_.transfer->second : 0.0; }

    /// The least time in which memory × time fits the memory, and copies fit the engines. The result is the least over
    /// the number of future microbatches that are offloaded. Offloading more microbatches takes more engine time, and
    /// may save memory × time.
    [[nodiscard]] double time_for_memory(const label& x) const {
        const auto all = needs_of(x);
        const auto left = r_.microbatches - forwards(x);
        const double copies = time_of_copies();
        const auto in_memory = [&](std::size_t offloaded) {
            const double held =
                static_cast<double>(offloaded) * copies + static_cast<double>(left - offloaded) * r_.wait;
            const double computing = static_cast<double>(left) * (r_.forward + r_.gradient);
            return (all.stashes + held + computing) / stashes_ + all.pending * pending_share_;
        };
        const auto on_engines = [&](std::size_t offloaded) {
            const double engines = r_.one_transfer_at_a_time ? 1.0 : 2.0;
            return (all.copies + static_cast<double>(offloaded) * copies) / engines;
        };
        const auto time_with = [&](std::size_t offloaded) {
            return std::max(in_memory(offloaded), on_engines(offloaded));
        };
        std::size_t low = 0;
        std::size_t high = r_.transfer && copies < r_.wait ? left : 0;
        while (low < high) {
            const auto middle = (low + high) / 2;
            if (on_engines(middle) >= in_memory(middle))
                high = middle;
            else
                low = middle + 1;
        }
        return low > 0 ? std::min(time_with(low - 1), time_with(low)) : time_with(low);
    }

    /// The share of the memory that one pending weight gradient counts for. A stash counts for 1 / stashes_. The share
    /// is the largest for which full memory counts for at most 1.
    [[nodiscard]] double share_of_pending() const {
        double share = 1.0;
        for (double full = 0.0; full <= stashes_; ++full)
            if (const double most = std::floor((r_.limit - full * r_.stash) / r_.pending); most >= 1.0)
                share = std::min(share, (1.0 - full / stashes_) / most);
        return share;
    }

    static constexpr double infinite = std::numeric_limits<double>::infinity();
    /// The first rise of the ceiling above the known bound, relative to the bound. Each further rise is twice the
    /// previous one. Not tuned.
    static constexpr double first_step = 0.005;
    /// Number of labels of each length that the first search keeps. For most ranks that can't raise the known bound,
    /// this search finds a sequence as short as the bound. Not tuned.
    static constexpr std::size_t few_labels = 200;
    static constexpr std::size_t all_labels = std::numeric_limits<std::size_t>::max();

    const lone_rank& r_;
    double known_;
    /// The number of stashes that fit the memory.
    double stashes_ = std::floor(r_.limit / r_.stash);
    double pending_share_ = share_of_pending();
    label next_{}; // reused, because a label allocates memory
    double done_ = 0.0;
    double ceiling_ = 0.0;
    double shortest_ = infinite;
    /// The least bound of the labels above the ceiling.
    double above_ = infinite;
};

/// Whether the memory of the stage's rank may be too small for the stashes of all microbatches.
inline bool may_lack_memory(const problem& relaxed, stage s) {
    const auto stash = relaxed.costs[s].activation;
    const auto slack = tolerance{}.at(relaxed.memory_scale());
    const auto count = static_cast<double>(relaxed.graph.microbatches());
    return stash > slack && count * stash > relaxed.memory_limit[relaxed.rank_of(s)] + slack;
}

/// The rank of stage s as a `lone_rank`. Contract: `relaxed` only keeps or offloads entire stashes, and s is the only
/// stage of its rank.
inline lone_rank lone_rank_of(const problem& relaxed, stage s, duration lifespan,
                              const time_windows<any_graph>& windows) {
    const rank at = relaxed.rank_of(s);
    const auto& c = relaxed.costs[s];
    const auto slack = tolerance{}.at(relaxed.memory_scale());
    const auto limit = relaxed.memory_limit[at] + slack;
    const auto count = relaxed.graph.microbatches();
    const bool half_duplex = shares_channel(relaxed.transfer);
    lone_rank r;
    r.microbatches = count;
    r.forward = c.forward.value();
    r.gradient = relaxed.gradient_time(s).value();
    if (relaxed.split_backward) r.weight = c.backward_weight.value();
    r.wait = (lifespan - c.forward - relaxed.gradient_time(s)).value();
    const auto transfer = stash_transfer(relaxed, s);
    if (transfer && c.activation <= relaxed.host_memory_limit[at] + slack)
        r.transfer.emplace(transfer->offload.value(), transfer->reload.value());
    r.one_transfer_at_a_time = shares_engine(relaxed.transfer) || half_duplex;
    r.stash = c.activation.value();
    r.pending = std::min(c.activation, c.weight_stash).value();
    r.limit = limit.value();
    for (std::size_t m = 0; m < count; ++m) {
        r.heads.push_back(windows.forward(s).head[m].value());
        r.tails.push_back(windows.gradient(s).tail[m].value());
    }
    return r;
}

} // namespace detail

OPTPIPE_INLINE duration lone_rank_bound(const problem& p, duration known, stop_check stop, double work) {
    if (known.is_unlimited()) return known;
    const auto relaxed = without_storage(p, storage_relaxation::fastest_transfer);
    const auto paths = paths_of(relaxed);
    std::optional<time_windows<any_graph>> windows;
    if (p.objective != objective_kind::span) windows = time_windows<any_graph>::step(relaxed);
    std::vector<stage> stages;
    for (const auto& of_rank : stages_by_rank(p.graph))
        if (of_rank.size() == 1 && detail::may_lack_memory(relaxed, of_rank.front())) stages.push_back(of_rank.front());
    for (std::size_t i = 0; i < stages.size() && !stop(); ++i) {
        if (p.objective == objective_kind::span)
            windows = time_windows<any_graph>::of_rank(relaxed, relaxed.rank_of(stages[i]));
        const auto alone = detail::lone_rank_of(relaxed, stages[i], paths.lifespan[stages[i]], *windows);
        detail::lone_rank_search search{alone, known.value()};
        known = std::max(known, duration{search.solve(work / static_cast<double>(stages.size() - i), stop)});
        work -= search.done();
    }
    return known;
}

} // namespace optpipe
#endif
