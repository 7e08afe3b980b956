#pragma once

#include "optpipe/core/quantity.hpp"
#include "optpipe/core/random.hpp"
#include "optpipe/core/stop_check.hpp"
#include "optpipe/core/tolerance.hpp"
#include "optpipe/pipeline/problem.hpp"
#include "optpipe/planner/modulo/parameters.hpp"
#include "optpipe/planner/modulo/pattern.hpp"
#include "optpipe/planner/modulo/period_search.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

namespace optpipe::detail {

/// Searches a pattern of one microbatch per period in v placement, rank by rank from the fold, where forwards turn, to
/// the first. In each period a rank runs F, I and W of both of its stages in some cyclic order, one right after the
/// other, except for one gap with all its idle time. All cyclic orders are tried, each at the times at which one of the
/// four operations that depend on the previous rank doesn't wait. The partial patterns with the least waiting of
/// microbatches are kept: while a microbatch waits, all ranks up to the first hold one more stash. A beam search: its
/// patterns are feasible, but it isn't complete.
///
/// `beam_search` places stage after stage, so it seldom fills ranks that have no time to spare.
class v_pattern_beam {
public:
    /// Contract: v placement, and backwards may be split. Costs are disturbed at random by up to `noise` periods.
    v_pattern_beam(const problem& p, duration period, std::size_t width, double noise, random_numbers& random)
        : p_{p}, period_{period.value()}, slack_{tolerance{rounding}.at(period).value()}, width_{width}, noise_{noise},
          random_{random} {}

    [[nodiscard]] std::optional<periodic_pattern> run(stop_check stop = {}) {
        std::vector<std::size_t> beam{none};
        for (auto r = p_.graph.ranks(); r-- > 0;) {
            children_.clear();
            for (const auto parent : beam)
                if (!stop()) extend(r, parent);
            if (children_.empty()) return std::nullopt;
            beam = take_best();
        }
        return least_memory_of(beam);
    }
    /// Number of cyclic orders tried.
    [[nodiscard]] std::size_t work() const { return work_; }

private:
    static constexpr std::size_t none = static_cast<std::size_t>(-1);
    /// Rounding error of sums of durations, in periods.
    static constexpr double rounding = 1e-9;

    /// The operations of a rank, on its first stage (`down`) and its second one (`back`), and its idle time.
    enum item : std::size_t { forward_down, forward_back, input_back, input_down, weight_down, weight_back, idle };
    static constexpr std::size_t operations = idle;
    using lengths = std::array<double, operations + 1>;

    /// A rank around the ranks after it.
    struct node {
        std::size_t parent = none;
        std::array<double, operations> start{};
        /// Total waiting time of a microbatch on this rank and those after it.
        double cost = 0.0;
    };
    /// Bounds of a rank's operations from its neighbour: forwards down and gradients back no later, the others no
    /// earlier.
    using bounds = std::array<double, input_down + 1>;

    [[nodiscard]] stage down(std::size_t r) const { return stage{r}; }
    [[nodiscard]] stage back(std::size_t r) const { return stage{p_.graph.stages() - 1 - r}; }

    [[nodiscard]] lengths lengths_of(std::size_t r) const {
        const auto& d = p_.costs[down(r)];
        const auto& b = p_.costs[back(r)];
        lengths length{d.forward.value(),        b.forward.value(),         b.backward_input.value(),
                       d.backward_input.value(), d.backward_weight.value(), b.backward_weight.value()};
        auto& left = length[idle] = period_;
        for (std::size_t i = 0; i < operations; ++i)
            left -= length[i];
        return length;
    }
    /// Bounds that the next rank implies.
    [[nodiscard]] bounds bounds_around(std::size_t r, const node& inner, const lengths& own) const {
        const auto next = lengths_of(r + 1);
        const auto to = p_.hop(down(r), down(r + 1)).value();
        const auto from = p_.hop(down(r + 1), down(r)).value();
        bounds at{};
        at[forward_down] = inner.start[forward_down] - to - own[forward_down];
        at[forward_back] = inner.start[forward_back] + next[forward_back] + from;
        at[input_back] = inner.start[input_back] - to - own[input_back];
        at[input_down] = inner.start[input_down] + next[input_down] + from;
        return at;
    }

    /// The first time from `from` on, or the last time until `from`, that equals `at` modulo the period.
    [[nodiscard]] double first_from(double from, double at) const {
        const auto after = at - from - period_ * std::floor((at - from) / period_);
        return after > period_ - slack_ ? from : from + after;
    }
    [[nodiscard]] double last_until(double until, double at) const { return -first_from(-until, -at); }

    void extend(std::size_t r, std::size_t parent) {
        const auto length = lengths_of(r);
        if (length[idle] < -slack_) return;
        const auto around = parent == none ? bounds{} : bounds_around(r, nodes_[parent], length);
        std::array<std::size_t, operations> order{forward_back, input_back, input_down, weight_down, weight_back, idle};
        const auto last = order.end() - (length[idle] > slack_ ? 0 : 1);
        do {
            std::array<double, operations + 1> after{};
            auto at = length[forward_down];
            for (auto next = order.begin(); next != last; at += length[*next++])
                after[*next] = at;
            ++work_;
            children_.push_back(parent == none ? fold(after, length) : best_child(parent, around, after, length));
            constexpr std::size_t grains = 1000;
            children_.back().cost +=
                noise_ * period_ * static_cast<double>(random_.below(grains)) / static_cast<double>(grains);
        } while (std::next_permutation(order.begin(), last));
    }
    /// The last rank, where forwards and gradients turn at once.
    [[nodiscard]] node fold(const lengths& after, const lengths& length) const {
        node n;
        n.start[forward_back] = first_from(length[forward_down], after[forward_back]);
        n.start[input_back] = after[input_back];
        const auto ready = n.start[input_back] + length[input_back];
        n.start[input_down] = first_from(ready, after[input_down]);
        n.cost = n.start[forward_back] - length[forward_down] + n.start[input_down] - ready;
        place_weights(n, after, length);
        return n;
    }
    /// The best child for an order; `after` has the starts of its operations relative to its first forward.
    [[nodiscard]] node best_child(std::size_t parent, const bounds& around, const lengths& after,
                                  const lengths& length) const {
        node best;
        best.cost = std::numeric_limits<double>::infinity();
        for (std::size_t tight = 0; tight < around.size(); ++tight) {
            const auto origin = around[tight] - after[tight];
            node n{parent, {}, nodes_[parent].cost};
            for (const auto i : {forward_down, input_back}) {
                n.start[i] = last_until(around[i], origin + after[i]);
                n.cost += around[i] - n.start[i];
            }
            for (const auto i : {forward_back, input_down}) {
                n.start[i] = first_from(around[i], origin + after[i]);
                n.cost += n.start[i] - around[i];
            }
            place_weights(n, after, length);
            if (n.cost < best.cost) best = n;
        }
        return best;
    }
    /// Places weight gradients. The memory that is held until then counts only on this rank.
    void place_weights(node& n, const lengths& after, const lengths& length) const {
        const auto place = [&](item weight, item input) {
            const auto ready = n.start[input] + length[input];
            n.start[weight] = first_from(ready, n.start[forward_down] + after[weight]);
            n.cost += (n.start[weight] - ready) / static_cast<double>(p_.graph.ranks());
        };
        place(weight_down, input_down);
        place(weight_back, input_back);
    }

    /// The distinct children of the least cost.
    [[nodiscard]] std::vector<std::size_t> take_best() {
        std::stable_sort(children_.begin(), children_.end(),
                         [](const node& a, const node& b) { return a.cost < b.cost; });
        std::vector<std::size_t> kept;
        for (const auto& child : children_) {
            const bool known = std::any_of(kept.begin(), kept.end(), [&](auto k) { return is_same(child, nodes_[k]); });
            if (known) continue;
            kept.push_back(nodes_.size());
            nodes_.push_back(child);
            if (kept.size() == width_) break;
        }
        return kept;
    }
    /// Whether the previous ranks can't distinguish the two.
    [[nodiscard]] bool is_same(const node& a, const node& b) const {
        for (const auto i : {forward_back, input_back, input_down}) {
            const auto difference = (a.start[i] - a.start[forward_down]) - (b.start[i] - b.start[forward_down]);
            if (std::abs(std::remainder(difference, period_)) > slack_) return false;
        }
        return true;
    }

    /// The pattern that leaves most memory for the prologue, if any fits.
    [[nodiscard]] std::optional<periodic_pattern> least_memory_of(const std::vector<std::size_t>& beam) const {
        std::optional<periodic_pattern> best;
        auto least = 1.0 + tolerance{}.relative;
        for (const auto i : beam) {
            auto pattern = pattern_of(i);
            const auto share = memory_share(pattern);
            if (share > least || (best && share == least)) continue;
            least = share;
            best = std::move(pattern);
        }
        return best;
    }
    /// The largest share of its memory limit that a rank uses.
    [[nodiscard]] double memory_share(const periodic_pattern& pattern) const {
        const auto peaks = memory_of_repetition(p_, pattern);
        double most = 0.0;
        for (const rank r : p_.graph.all_ranks())
            if (!p_.memory_limit[r].is_unlimited()) most = std::max(most, peaks[r] / p_.memory_limit[r]);
        return most;
    }
    /// The pattern with gradients as many periods later as the last forward of the first rank requires.
    [[nodiscard]] periodic_pattern pattern_of(std::size_t i) const {
        const auto& first = nodes_[i].start;
        const auto ends = first[forward_back] + lengths_of(0)[forward_back];
        const auto shift = first_from(ends, first[input_back]) - first[input_back];
        periodic_pattern pattern{duration{period_}, 1, per_stage<std::vector<pattern_slot>>(p_.graph.stages())};
        for (const rank r : p_.graph.all_ranks()) {
            const auto& at = nodes_[i].start;
            const auto put = [&](stage s, item forward, item input, item weight) {
                pattern_slot slot;
                slot.forward = duration{at[forward]};
                slot.gradient = duration{at[input] + shift};
                slot.weight = duration{at[weight] + shift};
                pattern.stages[s] = {slot};
            };
            put(down(r.position()), forward_down, input_down, weight_down);
            put(back(r.position()), forward_back, input_back, weight_back);
            i = nodes_[i].parent;
        }
        return pattern;
    }

    const problem& p_;
    double period_;
    double slack_;
    std::size_t width_;
    double noise_;
    random_numbers& random_;
    std::vector<node> nodes_{};
    std::vector<node> children_{};
    std::size_t work_ = 0;
};

/// Searches patterns of v placement from the load bound on the period upward until one is within memory. Repeats that
/// with beams of doubled width until the effort is spent.
///
/// Every pattern goes to `take`. `stop` is polled between partial patterns.
class v_pattern_search {
public:
    /// The effort counts cyclic orders. Only periods below `longest` are tried.
    v_pattern_search(const problem& p, std::uint64_t seed, std::size_t effort, duration longest,
                     std::function<void(const periodic_pattern&)> take, stop_check stop,
                     const v_pattern_parameters& with = {})
        : p_{p}, with_{with}, random_{seed}, effort_{effort}, longest_{longest}, take_{std::move(take)}, stop_{stop},
          load_{p.busiest_work()} {}

    /// Tries at least one period.
    void run() {
        for (auto width = with_.first_width; width <= with_.max_width && !exhausted(); width *= 2)
            search_upward(width);
    }
    [[nodiscard]] std::size_t spent() const { return spent_; }

private:
    [[nodiscard]] bool exhausted() const { return stop_() || (spent_ > 0 && spent_ >= effort_); }

    bool attempt(duration period, std::size_t width) {
        const auto noise = random_.below(2) == 0 ? 0.0 : with_.noise;
        v_pattern_beam beam{p_, period, width, noise, random_};
        const auto found = beam.run(stop_);
        spent_ += beam.work();
        if (found) take_(*found);
        return found.has_value();
    }
    /// Stops at the first period with a pattern. Within the last step there may be shorter ones, but mostly with the
    /// same order of operations, which determines their times.
    void search_upward(std::size_t width) {
        for (double above = 0.0; !exhausted(); above = above * with_.step_growth + with_.first_step) {
            const auto period = (1.0 + above) * load_;
            if (!(period < longest_) || attempt(period, width)) return;
        }
    }

    const problem& p_;
    v_pattern_parameters with_;
    random_numbers random_;
    std::size_t effort_;
    duration longest_;
    std::function<void(const periodic_pattern&)> take_;
    stop_check stop_;
    duration load_;
    std::size_t spent_ = 0;
};

} // namespace optpipe::detail
