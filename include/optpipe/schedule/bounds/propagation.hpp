#pragma once

#include "optpipe/core/compiled.hpp"
#include "optpipe/core/quantity.hpp"
#include "optpipe/core/stop_check.hpp"
#include "optpipe/pipeline/problem.hpp"
#include "optpipe/schedule/operation.hpp"

#include <array>
#include <optional>
#include <vector>

namespace optpipe {

/// The largest objective that propagation at the root refutes, found to within `precision`. The result is at least
/// `known`, and unlimited if propagation refutes every schedule. Contract: `validate` accepts the problem. Applies the
/// rules of a tree search before its first decision: precedence, one machine, and memory. The rules count operations
/// per stage, and don't distinguish microbatches of equal cost.
///
/// `stop` is polled. After a stop, the result is the largest objective that was refuted by then.
[[nodiscard]] duration propagation_bound(const problem& p, duration known, double precision = 1e-8,
                                         stop_check stop = {});

/// Orders and windows that hold in all schedules with an objective of at most a horizon (`propagation_bound`).
/// `microbatch` is an operation's position among the operations of its kind and stage. Times count from the start of
/// the step. For a span, times count from the first start on the rank of stage 0. A full backward is an I followed at
/// once by a W.
struct propagated_order {
    struct window {
        operation op{};
        double earliest_start = 0.0;
        double latest_end = 0.0;
    };
    struct pair {
        operation before{};
        operation after{};
    };
    std::vector<window> windows{};
    /// The orders on each rank. Orders that follow from other orders may be missing.
    std::vector<pair> orders{};
};

/// The deductions for `horizon`; empty if no schedule has an objective of at most `horizon`. Nothing is deduced if a
/// stage has options other than `keep` and `offload` of the whole stash. Contract: `is_plain(p)`.
[[nodiscard]] std::optional<propagated_order> propagate_order(const problem& p, duration horizon, stop_check stop = {});

namespace detail {

struct chain_system;

/// Whether propagation refutes every schedule of the chains that takes at most `horizon`. `around[d]` has the least
/// time before the first start on device d, and the least time after the last end on it. After a stop, returns false.
/// Contract: the objective of the chains isn't a span.
[[nodiscard]] bool is_refuted(const chain_system& c, const std::vector<std::array<double, 2>>& around, double horizon,
                              stop_check stop = {});

} // namespace detail
} // namespace optpipe

#if OPTPIPE_DEFINES(schedule)
#include "optpipe/schedule/bounds/chain_maker.hpp"
#include "optpipe/schedule/bounds/chains.hpp"
#include "optpipe/schedule/bounds/completion_tree.hpp"
#include "optpipe/schedule/bounds/deductions.hpp"
#include "optpipe/schedule/bounds/holding_rules.hpp"
#include "optpipe/schedule/bounds/memory_rules.hpp"
#include "optpipe/schedule/bounds/order_counts.hpp"
#include "optpipe/schedule/bounds/storage_relaxation.hpp"

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <utility>

namespace optpipe {
namespace detail {

/// Assumes that some schedule has an objective of at most `horizon`. Propagates windows and orders until there is a
/// contradiction or a fixed point.
class root_propagation {
public:
    /// `passes` limits the passes over all operations. After `passes` passes, or once `stop` returns true, nothing more
    /// is refuted.
    root_propagation(const chain_system& c, std::size_t passes, stop_check stop = {})
        : c_{&c}, passes_{passes}, stop_{stop} {
        by_time_[0].resize(c.chain_of.size());
        std::iota(by_time_[0].begin(), by_time_[0].end(), std::size_t{0});
        by_time_[1] = by_time_[0];
    }

    /// Returns false if no schedule has an objective of at most `horizon`. If a schedule with an objective of at most
    /// `horizon` may exist, returns true and adds the deductions to `known`. Contract: `horizon` is at most
    /// `known.horizon`.
    bool refine(deductions& known, double horizon) {
        d_ = &known;
        d_->horizon = horizon;
        std::fill(d_->changed.begin(), d_->changed.end(), true);
        for (int pass = 0; pass < most_passes && passes_ > 0; ++pass, --passes_) {
            active_ = std::exchange(d_->changed, std::vector<char>(c_->devices.size(), false));
            for (std::size_t r = 0; r < c_->devices.size(); ++r) {
                if (is_stopped()) return true;
                if (active_[r] && !decide(r)) return false;
            }
            for (std::size_t side = 0; side < 2; ++side) {
                raise_by_load(side);
                raise_by_links(side, pass);
                if (c_->span) raise_bases(side);
            }
            if (is_stopped()) return true;
            if (!windows_hold()) return false;
            if (std::find(d_->changed.begin(), d_->changed.end(), true) == d_->changed.end()) break;
        }
        return true;
    }

    [[nodiscard]] bool exhausted() const { return passes_ == 0; }

private:
    /// Whether propagation was stopped. After a stop, nothing more is propagated.
    bool is_stopped() {
        if (stop_()) passes_ = 0;
        return passes_ == 0;
    }

    using device = chain_system::device;

    /// The limit of passes in one call of `refine`. Further passes hardly tighten anything. Not tuned.
    static constexpr int most_passes = 100;

    bool decide(std::size_t r) {
        auto& order = d_->orders[r];
        if (order_by_windows(r)) order.close();
        if (!order.mirror()) return false;
        if (!c_->devices[r].limited) return true;
        return c_->devices[r].stages.empty() ? limit_memory(r, holding_rules{*d_, r})
                                             : limit_memory(r, memory_rules{*d_, r});
    }
    template <class Rules> bool limit_memory(std::size_t r, Rules rules) {
        if (!rules.deduce_order()) return false;
        d_->orders[r].close();
        return d_->orders[r].mirror() && rules.deduce_times();
    }

    /// Orders a before b on one device if there is no time for b before a.
    bool order_by_windows(std::size_t r) {
        const auto& on = c_->devices[r];
        bool found = false;
        for (std::size_t x = 0; x < on.chains.size(); ++x)
            for (std::size_t y = 0; y < on.chains.size(); ++y) {
                if (x == y) continue;
                const double both = c_->length[on.chains[x]] + c_->length[on.chains[y]] - c_->time_slack;
                std::size_t j = 0;
                for (std::size_t k = 0; k < c_->count[on.chains[x]]; ++k) {
                    while (j < c_->count[on.chains[y]] &&
                           d_->time(0, on.chains[x], k) + both > d_->latest_end(on.chains[y], j))
                        ++j;
                    if (d_->orders[r].raise(x, y, k, j)) found = true;
                }
            }
        if (found) d_->changed[r] = true;
        return found;
    }

    /// An operation starts after the total time of its predecessors on the device.
    void raise_by_load(std::size_t side) {
        for (std::size_t r = 0; r < c_->devices.size(); ++r) {
            if (!active_[r]) continue;
            const auto& on = c_->devices[r];
            sort_device(side, on);
            for (std::size_t x = 0; x < on.chains.size(); ++x) {
                tree_.clear(heads_.size());
                inserted_.assign(on.chains.size(), 0);
                for (std::size_t k = 0; k < c_->count[on.chains[x]]; ++k) {
                    for (std::size_t y = 0; y < on.chains.size(); ++y)
                        for (const auto until = d_->orders[r].first(side, x, y, k); inserted_[y] < until;
                             ++inserted_[y])
                            insert(c_->first[on.chains[y]] + inserted_[y]);
                    d_->raise(side, on.chains[x], k, tree_.completion());
                }
            }
        }
    }
    /// Sorts a device's operations by their times from the start (side 0) or from the end (side 1).
    void sort_device(std::size_t side, const device& on) {
        sorted_.clear();
        for (const std::size_t chain : on.chains)
            for (std::size_t k = 0; k < c_->count[chain]; ++k)
                sorted_.emplace_back(d_->time(side, chain, k), c_->first[chain] + k);
        std::sort(sorted_.begin(), sorted_.end());
        heads_.resize(sorted_.size());
        place_.resize(c_->chain_of.size());
        for (std::size_t i = 0; i < sorted_.size(); ++i) {
            heads_[i] = sorted_[i].first;
            place_[sorted_[i].second] = i;
        }
    }
    void insert(std::size_t op) {
        const std::size_t place = place_[op];
        tree_.insert(place, heads_[place], c_->length[c_->chain_of[op]]);
    }

    /// An operation starts after its predecessors in its chain, on its device and on other devices. Operations are
    /// visited in the order of time, so one pass propagates all changes.
    void raise_by_links(std::size_t side, int pass) {
        auto& times = d_->times[side];
        auto& order = by_time_[side];
        constexpr int often = 3;
        if (pass < often || pass % often == 0)
            std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
                return times[a] < times[b] || (times[a] == times[b] && a < b);
            });
        for (const std::size_t op : order) {
            const std::size_t chain = c_->chain_of[op];
            const std::size_t k = op - c_->first[chain];
            const std::size_t r = c_->rank_of[chain];
            double t = d_->bases[side][r];
            if (k > 0) t = std::max(t, times[op - 1] + c_->length[chain]);
            for (const auto& l : c_->links[side][chain])
                t = std::max(t, d_->time(side, l.chain, k) + c_->length[l.chain] + l.lag);
            const auto& on = c_->devices[r];
            for (std::size_t y = 0; y < on.chains.size(); ++y)
                if (const auto b = d_->orders[r].first(side, c_->place[chain], y, k); b > 0)
                    t = std::max(t, d_->time(side, on.chains[y], b - 1) + c_->length[on.chains[y]]);
            d_->raise(side, chain, k, t);
        }
    }
    /// A device's first start ≥ its last end − horizon.
    void raise_bases(std::size_t side) {
        for (std::size_t r = 0; r < c_->devices.size(); ++r)
            for (const std::size_t chain : c_->devices[r].chains)
                d_->raise_base(side, r, d_->end(side, chain)[-1] + c_->length[chain] - d_->horizon);
    }

    /// Applies the preemptive one-machine test. For every time t, the operations of a device that must end by t must
    /// fit before t.
    bool windows_hold() {
        for (std::size_t r = 0; r < c_->devices.size(); ++r) {
            if (!active_[r] && !d_->changed[r]) continue;
            const auto& on = c_->devices[r];
            sort_device(0, on);
            deadlines_.clear();
            for (const std::size_t chain : on.chains)
                for (std::size_t k = 0; k < c_->count[chain]; ++k)
                    deadlines_.emplace_back(d_->latest_end(chain, k), c_->first[chain] + k);
            std::sort(deadlines_.begin(), deadlines_.end());
            tree_.clear(heads_.size());
            for (const auto& [deadline, op] : deadlines_) {
                insert(op);
                if (tree_.completion() > deadline + c_->time_slack) return false;
            }
        }
        return true;
    }

    const chain_system* c_;
    std::size_t passes_;
    stop_check stop_;
    deductions* d_ = nullptr;
    completion_tree tree_{};
    std::vector<char> active_{};
    std::array<std::vector<std::size_t>, 2> by_time_{};
    std::vector<std::pair<double, std::size_t>> sorted_{};
    std::vector<std::pair<double, std::size_t>> deadlines_{};
    std::vector<std::size_t> place_{};
    std::vector<double> heads_{};
    std::vector<std::size_t> inserted_{};
};

/// The ranks whose first start is used as time 0. Any rank gives a valid bound. The ranks of the first and the last
/// stage give the strongest bounds.
inline std::vector<std::size_t> references(const chain_system& c) {
    if (!c.span) return {0};
    constexpr std::size_t few_operations = 2000;
    std::vector<std::size_t> all(c.devices.size());
    std::iota(all.begin(), all.end(), std::size_t{0});
    if (c.chain_of.size() > few_operations) all = {c.rank_of.front(), c.rank_of.back()};
    return all;
}

/// The number of visits to operations in one pass. For each pair of an operation and a chain, deductions look at all
/// holdings of a device.
inline double visits_in_pass(const chain_system& c) {
    constexpr double holdings_per_visit = 100.0; // looking at this many holdings takes about as long as one visit
    double visits = 0.0;
    for (const auto& on : c.devices) {
        std::size_t operations = 0;
        for (const std::size_t chain : on.chains)
            operations += c.count[chain];
        const auto looked_at = static_cast<double>(on.chains.size() * on.holdings.size());
        visits += static_cast<double>(operations) * (1.0 + looked_at / holdings_per_visit);
    }
    return visits;
}
/// The limit of passes, which allows a few seconds of work for the largest problems. The limit is rarely reached with
/// up to 32 ranks and 128 microbatches.
inline std::size_t affordable_passes(const chain_system& c) {
    constexpr double most_visits = 16e6;
    constexpr std::size_t fewest = 40;
    const bool offloads = std::any_of(c.devices.begin(), c.devices.end(), [](const auto& on) { return on.offloads; });
    return std::max(fewest, static_cast<std::size_t>(most_visits / ((offloads ? 2.0 : 1.0) * visits_in_pass(c))));
}

} // namespace detail

OPTPIPE_INLINE bool detail::is_refuted(const chain_system& c, const std::vector<std::array<double, 2>>& around,
                                       double horizon, stop_check stop) {
    root_propagation propagation{c, affordable_passes(c), stop};
    deductions known{c, 0};
    for (std::size_t side = 0; side < 2; ++side)
        for (std::size_t device = 0; device < around.size(); ++device)
            known.bases[side][device] = around[device][side];
    return !propagation.refine(known, horizon);
}

OPTPIPE_INLINE duration propagation_bound(const problem& p, duration known, double precision, stop_check stop) {
    if (known.is_unlimited() || !p.overlaps.empty()) return known; // the rules don't cover pairs
    if (is_plain(p) && !is_described_by_costs(p))
        return propagation_bound(without_storage(p, storage_relaxation::fastest_transfer), known, precision, stop);
    const auto c = detail::chains_of(p);
    detail::root_propagation propagation{c, detail::affordable_passes(c), stop};
    double refuted = std::max(known.value(), c.length.front());
    for (const std::size_t reference : detail::references(c)) {
        detail::deductions open{c, reference};
        const auto holds = [&](double objective) {
            auto tried = open;
            if (!propagation.refine(tried, objective)) return false;
            open = std::move(tried);
            return true;
        };
        constexpr double first_step = 0.01; // the least relative step after the first step
        double step = precision;
        double top = refuted * (1.0 + step);
        for (; !holds(top); top *= 1.0 + step) {
            refuted = top;
            // If any schedule is valid, the serial schedule is valid, too, up to rounding.
            if (refuted > 2.0 * p.serial_time().value()) return duration::unlimited();
            step = std::max(first_step, 2.0 * step);
        }
        while (step > precision && top - refuted > precision * top && !propagation.exhausted()) {
            const double middle = 0.5 * (top + refuted);
            if (holds(middle))
                top = middle;
            else
                refuted = middle;
        }
    }
    return duration{refuted};
}

OPTPIPE_INLINE std::optional<propagated_order> propagate_order(const problem& p, duration horizon, stop_check stop) {
    if (!is_described_by_costs(p)) return propagated_order{};
    const auto c = detail::chains_of(p);
    detail::root_propagation propagation{c, detail::affordable_passes(c), stop};
    detail::deductions known{c, p.rank_of(stage{0}).position()};
    if (!propagation.refine(known, horizon.value())) return std::nullopt;
    const auto operation_at = [&](std::size_t chain, std::size_t k) {
        constexpr std::array kinds{operation_kind::forward, operation_kind::backward_input,
                                   operation_kind::backward_weight};
        const std::size_t per_stage = p.split_backward ? 3 : 2;
        return operation{stage{chain / per_stage}, kinds[chain % per_stage], microbatch{k}};
    };
    propagated_order found;
    for (std::size_t chain = 0; chain < c.length.size(); ++chain)
        for (std::size_t k = 0; k < c.count[chain]; ++k)
            found.windows.push_back({operation_at(chain, k), known.time(0, chain, k), known.latest_end(chain, k)});
    for (std::size_t r = 0; r < c.devices.size(); ++r) {
        const auto& chains = c.devices[r].chains;
        for (std::size_t x = 0; x < chains.size(); ++x)
            for (std::size_t y = 0; y < chains.size(); ++y)
                for (std::size_t k = 0; k < c.count[chains[x]]; ++k)
                    if (const auto number = known.orders[r].first(0, x, y, k); number > 0)
                        found.orders.push_back({operation_at(chains[y], number - 1), operation_at(chains[x], k)});
    }
    return found;
}

} // namespace optpipe
#endif
