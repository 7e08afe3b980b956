#pragma once

#include "optpipe/schedule/bounds/chains.hpp"
#include "optpipe/schedule/bounds/deductions.hpp"
#include "optpipe/schedule/bounds/order_counts.hpp"

#include <algorithm>
#include <cstddef>
#include <vector>

namespace optpipe::detail {

/// Propagates the memory limit of one device whose memory is given by holdings. At every start, (memory certainly
/// taken) − (memory possibly released) must fit under the limit. For two operations, assumes one order and all orders
/// implied by it (`order_counts`). If the assumed order makes the memory in use exceed the limit, the opposite order is
/// deduced.
class holding_rules {
public:
    holding_rules(deductions& known, std::size_t device)
        : d_{&known}, c_{known.system}, on_{&known.system->devices[device]}, order_{&known.orders[device]},
          device_{device}, started_(on_->chains.size()), ended_(on_->chains.size()), takes_(on_->chains.size(), false) {
        for (const auto& h : on_->holdings) {
            const bool is_far = c_->rank_of[h.to] != device;
            holdings_.push_back({c_->place[h.from], is_far ? chain_system::none : c_->place[h.to], h.to, h.size, 0});
            takes_[c_->place[h.from]] = true;
        }
    }

    /// Returns false if some operation doesn't fit in any order.
    bool deduce_order() {
        for (std::size_t x = 0; x < on_->chains.size(); ++x)
            for (std::size_t k = 0; takes_[x] && k < count(x); ++k)
                if (!restrict_order(x, k)) return false;
        return true;
    }
    /// Deduces nothing, because times follow from the order.
    static bool deduce_times() { return true; }

private:
    struct holding {
        std::size_t from; // position of the chain
        std::size_t to;   // position of the chain, or `none` if it is on another device
        std::size_t to_chain;
        double size;
        /// For a chain `to` on another device, the most operations that can have ended when the examined operation
        /// starts.
        std::size_t far_ended;
    };

    [[nodiscard]] std::size_t count(std::size_t place) const { return c_->count[on_->chains[place]]; }

    /// The least memory in use after `started(place)` starts and `ended(place)` ends of each chain.
    template <class Started, class Ended>
    [[nodiscard]] double in_use(const Started& started, const Ended& ended) const {
        double all = 0.0;
        for (const auto& h : holdings_) {
            const std::size_t taken = started(h.from);
            const std::size_t released = h.to == chain_system::none ? h.far_ended : ended(h.to);
            if (taken > released) all += h.size * static_cast<double>(taken - released);
        }
        return all;
    }
    [[nodiscard]] auto least_started() const {
        return [&](std::size_t z) { return started_[z]; };
    }
    [[nodiscard]] auto most_ended() const {
        return [&](std::size_t z) { return ended_[z]; };
    }
    /// Whether the examined operation fits in memory before operation n of chain y and all its successors.
    [[nodiscard]] bool fits_before(std::size_t y, std::size_t n) const {
        const auto ended = [&](std::size_t z) { return std::min(ended_[z], z == y ? n : order_->most(y, z, n)); };
        return in_use(least_started(), ended) <= on_->limit;
    }
    /// Whether the examined operation fits in memory after operation n of chain y and all its predecessors.
    [[nodiscard]] bool fits_after(std::size_t y, std::size_t n) const {
        const auto started = [&](std::size_t z) {
            return std::max(started_[z], z == y ? n + 1 : order_->first(0, y, z, n));
        };
        return in_use(started, most_ended()) <= on_->limit;
    }

    /// Deduces the order of operation k of chain x and all other operations from the memory in use.
    bool restrict_order(std::size_t x, std::size_t k) {
        for (std::size_t z = 0; z < started_.size(); ++z) {
            started_[z] = z == x ? k + 1 : order_->first(0, x, z, k);
            ended_[z] = z == x ? k : order_->most(x, z, k);
        }
        find_far_releases(d_->latest_start(on_->chains[x], k));
        if (in_use(least_started(), most_ended()) > on_->limit) return false;
        for (std::size_t y = 0; y < started_.size(); ++y) {
            if (y == x) continue;
            precede(x, k, y);
            follow(x, k, y);
        }
        return true;
    }
    void find_far_releases(double time) {
        for (auto& h : holdings_) {
            if (h.to != chain_system::none) continue;
            const double latest = time - c_->length[h.to_chain] + c_->time_slack;
            const auto* first = d_->begin(0, h.to_chain);
            h.far_ended = static_cast<std::size_t>(std::upper_bound(first, d_->end(0, h.to_chain), latest) - first);
        }
    }
    /// Puts operation k of chain x after the operations of chain y that must free memory for it.
    void precede(std::size_t x, std::size_t k, std::size_t y) {
        std::size_t low = order_->first(0, x, y, k);
        std::size_t high = ended_[y];
        if (low >= high || fits_before(y, low)) return;
        for (++low; low < high;) {
            const std::size_t middle = (low + high) / 2;
            if (fits_before(y, middle))
                high = middle;
            else
                low = middle + 1;
        }
        if (order_->raise(x, y, k, low)) d_->changed[device_] = true;
    }
    /// Puts operation k of chain x before the operations of chain y that would leave too little memory.
    void follow(std::size_t x, std::size_t k, std::size_t y) {
        std::size_t low = started_[y];
        std::size_t high = ended_[y];
        if (low >= high || fits_after(y, high - 1)) return;
        for (--high; low < high;) {
            const std::size_t middle = (low + high) / 2;
            if (fits_after(y, middle))
                low = middle + 1;
            else
                high = middle;
        }
        if (order_->raise(y, x, low, k + 1)) d_->changed[device_] = true;
    }

    deductions* d_;
    const chain_system* c_;
    const chain_system::device* on_;
    order_counts* order_;
    std::size_t device_;
    std::vector<holding> holdings_{};
    /// The state when the examined operation starts, indexed by the position of a chain. `started_` is the least number
    /// of started operations of a chain. `ended_` is the largest possible number of ended operations.
    std::vector<std::size_t> started_;
    std::vector<std::size_t> ended_;
    /// Whether the chain at each position takes memory.
    std::vector<char> takes_;
};

} // namespace optpipe::detail
