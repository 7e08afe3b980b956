#pragma once

#include "optpipe/schedule/bounds/chains.hpp"
#include "optpipe/schedule/bounds/deductions.hpp"
#include "optpipe/schedule/bounds/order_counts.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <limits>
#include <vector>

namespace optpipe::detail {

/// Propagates the memory limit of one device. At every start, stashes that are neither released nor offloadable must
/// fit under the limit.
class memory_rules {
public:
    memory_rules(deductions& known, std::size_t device)
        : d_{&known}, c_{known.system}, on_{&known.system->devices[device]}, order_{&known.orders[device]},
          device_{device}, ranges_(on_->stages.size()) {
        if (on_->offloads) find_transfers();
    }

    /// Returns false if some operation doesn't fit in any order.
    bool deduce_order() {
        return for_each_start([&](const start& at) {
            const double offloaded =
                most_offloaded(d_->time(0, chain(at.x), at.k), d_->latest_start(chain(at.x), at.k));
            return restrict_order(at, view::some_offloaded, offloaded) &&
                   (!on_->offloads || restrict_order(at, view::all_offloaded, 0.0));
        });
    }
    /// Deduces times only if stashes are offloaded. Without offloading, times follow from the order alone.
    bool deduce_times() {
        if (!on_->offloads) return true;
        return for_each_start([&](const start& at) { return raise_start(at) && lower_start(at); });
    }

private:
    using held_stage = chain_system::held_stage;

    /// The start of operation k of chain x. The operation is a forward or gradient of stage `own`, and its stash is on
    /// the device.
    struct start {
        std::size_t own = 0;
        std::size_t x = 0;
        std::size_t k = 0;
    };
    /// For each kind of operation of one stage, the number of operations before a given operation.
    struct amounts {
        std::size_t forwards = 0;
        std::size_t gradients = 0;
        std::size_t weights = 0;
    };
    struct amount_ranges {
        amounts least{};
        amounts most{};
    };
    /// Two lower bounds on the memory in use. `some_offloaded` counts stashes, minus the memory that can be offloaded.
    /// `all_offloaded` counts the stashes of stages without offloading, and the stash of the operation that starts.
    /// Each bound is a sum over stages, including the weight stashes of waiting weight gradients.
    enum class view { some_offloaded, all_offloaded };

    [[nodiscard]] std::size_t chain(std::size_t place) const { return on_->chains[place]; }
    [[nodiscard]] std::size_t count(std::size_t place) const { return c_->count[chain(place)]; }

    template <class Visit> bool for_each_start(Visit visit) const {
        for (std::size_t own = 0; own < on_->stages.size(); ++own)
            for (const std::size_t x : {on_->stages[own].forward, on_->stages[own].gradient})
                for (std::size_t k = 0; k < count(x); ++k)
                    if (!visit(start{own, x, k})) return false;
        return true;
    }

    // Memory in use.

    static double in_use(const held_stage& h, const amounts& n, view v) {
        const double waiting = h.kept * static_cast<double>(n.gradients - n.weights);
        if (h.offloads && v == view::all_offloaded) return waiting;
        return waiting + h.activation * static_cast<double>(n.forwards - n.gradients);
    }
    static double least_in_use(const held_stage& h, const amount_ranges& n, view v) {
        amounts best;
        best.forwards = n.least.forwards;
        best.gradients = std::min(best.forwards, n.most.gradients);
        if (h.offloads && v == view::all_offloaded)
            best.gradients = std::max(n.least.gradients, std::min(best.gradients, n.most.weights));
        best.weights = std::min(best.gradients, n.most.weights);
        return in_use(h, best, v);
    }
    [[nodiscard]] double least_in_use(const start& at, view v, double offloaded) const {
        double all = v == view::some_offloaded ? -offloaded : 0.0;
        if (v == view::all_offloaded && on_->stages[at.own].offloads) all += on_->stages[at.own].activation;
        for (std::size_t i = 0; i < on_->stages.size(); ++i)
            all += least_in_use(on_->stages[i], ranges_[i], v);
        return all;
    }

    /// For each stage, finds the least and the largest numbers of operations before `at` in the known order.
    void find_ranges(const start& at) {
        for (std::size_t i = 0; i < on_->stages.size(); ++i) {
            const auto& h = on_->stages[i];
            auto& n = ranges_[i];
            const auto both = [&](std::size_t y, std::size_t& least, std::size_t& most) {
                least = order_->first(0, at.x, y, at.k);
                most = at.x == y ? at.k : order_->most(at.x, y, at.k);
            };
            both(h.forward, n.least.forwards, n.most.forwards);
            both(h.gradient, n.least.gradients, n.most.gradients);
            if (h.weight != chain_system::none) both(h.weight, n.least.weights, n.most.weights);
            if (at.x == h.forward) n.least.forwards = n.most.forwards = at.k + 1;
        }
    }

    // The functions below deduce orders.

    bool restrict_order(const start& at, view v, double offloaded) {
        find_ranges(at);
        const double all = least_in_use(at, v, offloaded);
        if (all > on_->limit) return false;
        for (std::size_t i = 0; i < on_->stages.size(); ++i) {
            const auto& h = on_->stages[i];
            restrict_order(h, ranges_[i], at, v, on_->limit - all + least_in_use(h, ranges_[i], v));
        }
        return true;
    }
    /// Deduces orders from the condition that stage `h` uses at most `room` memory. Memory in use grows with each
    /// forward, and falls with each weight gradient. If the stage's stashes count as offloaded, each gradient adds
    /// memory. If the stage's stashes count as kept, each gradient releases memory.
    void restrict_order(const held_stage& h, const amount_ranges& n, const start& at, view v, double room) {
        auto tried = n;
        const auto fits = [&] { return least_in_use(h, tried, v) <= room; };
        const auto least = [&](std::size_t& number, std::size_t low) {
            for (std::size_t high = number; low < high;) {
                number = (low + high) / 2;
                fits() ? high = number : low = number + 1;
            }
            tried = n;
            return low;
        };
        const auto most = [&](std::size_t& number, std::size_t high) {
            std::size_t low = number;
            while (low < high) {
                number = (low + high + 1) / 2;
                fits() ? low = number : high = number - 1;
            }
            tried = n;
            return low;
        };
        if (at.x != h.gradient) {
            tried.most.gradients = std::min(n.most.gradients, n.most.forwards);
            precede(at, h.gradient, least(tried.most.gradients, n.least.gradients));
            follow(at, h.gradient, most(tried.least.gradients, n.most.gradients));
        }
        if (h.weight != chain_system::none) precede(at, h.weight, least(tried.most.weights, n.least.weights));
        if (at.x != h.forward) follow(at, h.forward, most(tried.least.forwards, n.most.forwards));
    }
    void precede(const start& at, std::size_t y, std::size_t number) {
        if (order_->raise(at.x, y, at.k, number)) d_->changed[device_] = true;
    }
    void follow(const start& at, std::size_t y, std::size_t number) {
        if (number < count(y) && order_->raise(y, at.x, number, at.k + 1)) d_->changed[device_] = true;
    }

    // The functions below deduce transfers and times.

    /// Finds the earliest ends of offloads (side 0) and, in reversed time, reloads (side 1). Transfers run one at a
    /// time. An offload runs after its forward. In reversed time, a reload runs after its gradient.
    void find_transfers() {
        for (std::size_t side = 0; side < 2; ++side) {
            auto& done = transfers_[side];
            double each = std::numeric_limits<double>::infinity();
            for (const auto& h : on_->stages) {
                if (!h.offloads) continue;
                const std::size_t from = chain(side == 0 ? h.forward : h.gradient);
                for (std::size_t k = 0; k < c_->count[from]; ++k)
                    done.push_back(d_->time(side, from, k) + c_->length[from]);
                each = std::min(each, side == 0 ? h.offload : h.reload);
                largest_ = std::max(largest_, h.activation);
            }
            std::sort(done.begin(), done.end());
            double engine = deductions::unknown;
            for (double& t : done)
                engine = t = std::max(engine, t) + each;
        }
    }
    /// The most memory that can be on the host at some moment from `early` to `late`. A stash can be on the host from
    /// the end of its earliest offload to the start of its latest reload.
    [[nodiscard]] double most_offloaded(double early, double late) const {
        if (!on_->offloads) return 0.0;
        const auto by = [&](std::size_t side, double t) {
            const auto& done = transfers_[side];
            return std::upper_bound(done.begin(), done.end(), t + c_->time_slack) - done.begin();
        };
        const auto number = std::min(by(0, late), by(1, d_->horizon - early));
        return std::min(largest_ * static_cast<double>(number), on_->host_limit);
    }

    /// The numbers of operations of a chain that can end by `t`, and that must start before `t`.
    [[nodiscard]] std::size_t can_end(std::size_t y, double t) const {
        const auto* first = d_->begin(0, chain(y));
        const double latest = t - c_->length[chain(y)] + c_->time_slack;
        return static_cast<std::size_t>(std::upper_bound(first, d_->end(0, chain(y)), latest) - first);
    }
    [[nodiscard]] std::size_t must_start(std::size_t y, double t) const {
        const auto* first = d_->begin(1, chain(y));
        const double left = d_->horizon - t - c_->length[chain(y)] + c_->time_slack;
        return static_cast<std::size_t>(d_->end(1, chain(y)) - std::upper_bound(first, d_->end(1, chain(y)), left));
    }
    /// Whether the operation of `at` can start at time `t`.
    bool fits_at(const start& at, double t) {
        find_ranges(at);
        for (std::size_t i = 0; i < on_->stages.size(); ++i) {
            const auto& h = on_->stages[i];
            auto& n = ranges_[i];
            if (at.x != h.forward) n.least.forwards = std::max(n.least.forwards, must_start(h.forward, t));
            if (at.x != h.gradient) {
                n.least.gradients = std::max(n.least.gradients, must_start(h.gradient, t));
                n.most.gradients = std::min(n.most.gradients, can_end(h.gradient, t));
            }
            if (h.weight != chain_system::none) n.most.weights = std::min(n.most.weights, can_end(h.weight, t));
        }
        return least_in_use(at, view::some_offloaded, most_offloaded(t, t)) <= on_->limit &&
               least_in_use(at, view::all_offloaded, 0.0) <= on_->limit;
    }

    /// The next moment after `t` with more memory to release or offload.
    [[nodiscard]] double next_release(double t) const {
        double next = std::numeric_limits<double>::infinity();
        const auto consider = [&](const double* first, const double* last, double shift) {
            const auto* found = std::upper_bound(first, last, t - shift + c_->time_slack);
            if (found != last) next = std::min(next, *found + shift);
        };
        for (const auto& h : on_->stages)
            for (const std::size_t y : {h.gradient, h.weight})
                if (y != chain_system::none)
                    consider(d_->begin(0, chain(y)), d_->end(0, chain(y)), c_->length[chain(y)]);
        const auto& out = transfers_[0];
        consider(out.data(), out.data() + out.size(), 0.0);
        return next;
    }
    /// The last moment before `t` with less memory to hold, or more memory to reload.
    [[nodiscard]] double previous_stash(double t) const {
        const double left = d_->horizon - t;
        double next = std::numeric_limits<double>::infinity();
        const auto consider = [&](const double* first, const double* last, double shift) {
            const auto* found = std::upper_bound(first, last, left - shift + c_->time_slack);
            if (found != last) next = std::min(next, *found + shift);
        };
        for (const auto& h : on_->stages)
            for (const std::size_t y : {h.forward, h.gradient})
                consider(d_->begin(1, chain(y)), d_->end(1, chain(y)), c_->length[chain(y)]);
        const auto& in = transfers_[1];
        consider(in.data(), in.data() + in.size(), 0.0);
        return d_->horizon - next;
    }
    bool raise_start(const start& at) {
        const double last = d_->latest_start(chain(at.x), at.k) + c_->time_slack;
        double t = d_->time(0, chain(at.x), at.k);
        while (!fits_at(at, t)) {
            t = next_release(t);
            if (t > last || t == std::numeric_limits<double>::infinity()) return false;
        }
        d_->raise(0, chain(at.x), at.k, t);
        return true;
    }
    bool lower_start(const start& at) {
        const double first = d_->time(0, chain(at.x), at.k) - c_->time_slack;
        double t = d_->latest_start(chain(at.x), at.k);
        while (!fits_at(at, t)) {
            t = previous_stash(t);
            if (t < first || t == deductions::unknown) return false;
        }
        d_->raise(1, chain(at.x), count(at.x) - 1 - at.k, d_->horizon - t - c_->length[chain(at.x)]);
        return true;
    }

    deductions* d_;
    const chain_system* c_;
    const chain_system::device* on_;
    order_counts* order_;
    std::size_t device_;
    std::vector<amount_ranges> ranges_;
    std::array<std::vector<double>, 2> transfers_{};
    double largest_ = 0.0;
};

} // namespace optpipe::detail
