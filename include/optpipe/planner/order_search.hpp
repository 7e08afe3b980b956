#pragma once

#include "optpipe/core/random.hpp"
#include "optpipe/pipeline/problem.hpp"
#include "optpipe/planner/portfolio/search_state.hpp"
#include "optpipe/schedule/operation.hpp"
#include "optpipe/schedule/rules/dependencies.hpp"
#include "optpipe/schedule/schedule.hpp"
#include "optpipe/schedule/time/simulate.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

namespace optpipe {

/// The parameters of `order_search`, the same for every problem; not tuned.
struct order_search_parameters {
    std::uint64_t seed = 1;
    /// Number of orders that are timed.
    std::size_t moves = std::numeric_limits<std::size_t>::max();
    /// Temperature at the beginning and at the end, as shares of the objective.
    double first_temperature = 4e-3;
    double last_temperature = 1e-4;
    /// Moves until the temperature has fallen to the last one, if `moves` isn't less; then it starts anew from the
    /// best.
    std::size_t moves_of_round = 30'000;
    /// The largest number of places by which an operation moves on its lane.
    std::size_t farthest = 6;
    /// One in this number of moves exchanges sequences, one splits or joins a backward, and one changes a storage
    /// option; the others move an operation on its lane. Above 2.
    std::size_t moves_per_other = 16;
    /// Share of operations on a critical path among those that move, in percent.
    std::size_t percent_critical = 75;
    /// Weight of the mean end of the ranks beside the objective: of equal objectives, an earlier end of other ranks.
    double weight_of_mean = 1e-3;
};

namespace detail {

/// Simulated annealing over whole orders, each timed anew by `simulate`; for any graph and microbatches.
class order_annealer {
public:
    order_annealer(search_state& state, const order_search_parameters& with, std::string_view name)
        : state_{&state}, p_{&state.problem()}, with_{with}, name_{name}, random_{with.seed}, number_{p_->graph} {}

    void run() {
        std::size_t left = with_.moves;
        while (left > 0 && !state_->done()) {
            const auto start = state_->incumbent();
            if (!start) return;
            take(*start);
            const auto round = std::min(left, with_.moves_of_round);
            anneal(round);
            left -= round;
        }
    }

private:
    using index = std::size_t;

    void anneal(index moves) {
        const double begin = with_.first_temperature * value_;
        const double ratio = with_.last_temperature / with_.first_temperature;
        constexpr index between_looks = 16;
        for (index i = 0; i < moves; ++i) {
            if (i % between_looks == 0 && state_->done()) return;
            const double temperature = begin * std::pow(ratio, static_cast<double>(i) / static_cast<double>(moves));
            auto candidate = neighbour();
            if (!candidate) continue;
            auto timed = simulate(*p_, *candidate);
            if (!timed) continue;
            const double value = value_of(*timed);
            const bool is_accepted = value <= value_ || random_.share() < std::exp((value_ - value) / temperature);
            if (!is_accepted) continue;
            if (objective_of(*p_, *timed) < state_->target()) state_->offer(*candidate, name_);
            take(*std::move(timed));
        }
    }

    double value_of(const schedule& s) const {
        const auto engaged = engagement_of(*p_, s);
        double sum = 0.0;
        for (const rank r : p_->graph.all_ranks())
            sum += engaged.last[r].value();
        return objective_of(*p_, s).value() + with_.weight_of_mean * sum / static_cast<double>(p_->graph.ranks());
    }

    /// Makes `s` the current schedule, its operations in the order of their starts.
    void take(schedule s) {
        now_ = std::move(s);
        std::sort(now_.operations.begin(), now_.operations.end(), starts_before);
        value_ = value_of(now_);
        place_.assign(number_.size(), none);
        lanes_.assign(p_->graph.ranks(), {});
        for (index i = 0; i < now_.operations.size(); ++i) {
            const auto& op = now_.operations[i].op;
            place_[number_(op)] = i;
            if (!is_transfer(op.kind)) lanes_[p_->rank_of(op.stage).position()].push_back(i);
        }
        find_critical();
    }
    /// Walks back from the last end: each operation starts when the one before it on the path lets it.
    void find_critical() {
        critical_.clear();
        if (now_.operations.empty()) return;
        index at = 0;
        for (index i = 1; i < now_.operations.size(); ++i)
            if (now_.operations[i].end > now_.operations[at].end) at = i;
        for (;;) {
            critical_.push_back(at);
            const auto before = blocker_of(at);
            if (!before) return;
            at = *before;
        }
    }
    std::optional<index> blocker_of(index at) const {
        const auto& timed = now_.operations[at];
        constexpr double rounding = 1e-9;
        const auto slack = rounding * timed.start;
        std::optional<index> found;
        const auto offer = [&](index i, duration delay) {
            if (!found && i < at && now_.operations[i].end + delay >= timed.start - slack) found = i;
        };
        for_each_dependency(*p_, timed.op, stash_way_of(*p_, timed.op), [&](const operation& before, duration delay) {
            if (const auto i = place_of(before); i != none) offer(i, delay);
        });
        if (found) return found;
        // The lane, or memory that an operation of some rank freed.
        const rank r = p_->rank_of(timed.op.stage);
        for (index i = at; i-- > 0 && !found;)
            if (p_->rank_of(now_.operations[i].op.stage) == r) offer(i, {});
        return found;
    }
    /// The place of an operation, or of the full backward in its place.
    index place_of(const operation& op) const {
        const auto i = place_[number_(op)];
        if (i != none || op.kind != operation_kind::backward_input) return i;
        return place_[number_(sibling(op, operation_kind::backward))];
    }

    std::optional<order> neighbour() {
        switch (random_.below(with_.moves_per_other)) {
        case 0: return exchange_sequences();
        case 1: return split_or_join();
        case 2: return change_storage();
        default: return move_on_lane();
        }
    }

    order order_now() const {
        order all{p_->graph, {}};
        all.operations.reserve(now_.operations.size());
        for (const auto& timed : now_.operations)
            all.operations.push_back(timed.op);
        return all;
    }

    /// Moves an operation some places forward or back on its lane, if its inputs and consumers allow that.
    std::optional<order> move_on_lane() {
        const bool is_critical = random_.chance(with_.percent_critical);
        const index at =
            is_critical ? critical_[random_.below(critical_.size())] : random_.below(now_.operations.size());
        const auto& op = now_.operations[at].op;
        if (is_transfer(op.kind)) return move_transfer(at);
        const auto& lane = lanes_[p_->rank_of(op.stage).position()];
        const auto in_lane = static_cast<index>(std::lower_bound(lane.begin(), lane.end(), at) - lane.begin());
        const auto by = random_.between(1, with_.farthest);
        if (random_.chance(half)) {
            if (in_lane < by) return std::nullopt;
            return moved(at, std::max(lane[in_lane - by], after_inputs(at)));
        }
        if (in_lane + by >= lane.size()) return std::nullopt;
        return moved(at, std::min(lane[in_lane + by], before_consumers(at)));
    }
    std::optional<order> move_transfer(index at) {
        const auto by = random_.between(1, 4 * with_.farthest);
        if (random_.chance(half)) return moved(at, std::max(at - std::min(at, by), after_inputs(at)));
        return moved(at, std::min(std::min(at + by, now_.operations.size() - 1), before_consumers(at)));
    }
    /// The first place after all inputs of the operation.
    index after_inputs(index at) const {
        const auto& op = now_.operations[at].op;
        index first = 0;
        for_each_dependency(*p_, op, stash_way_of(*p_, op), [&](const operation& before, duration) {
            if (const auto i = place_of(before); i != none) first = std::max(first, i + 1);
        });
        return first;
    }
    /// The last place before all operations that wait for the operation.
    index before_consumers(index at) const {
        const auto& op = now_.operations[at].op;
        index last = now_.operations.size() - 1;
        const auto look_at = [&](const operation& after) {
            if (const auto i = place_of(after); i != none && i > at) last = std::min(last, i - 1);
        };
        for_each_consumer(*p_, op, [&](const operation& after, duration) { look_at(after); });
        for (const auto kind : all_operation_kinds)
            if (const auto own = sibling(op, kind); !is_same_work(own, op) && waits_for(own, op)) look_at(own);
        return last;
    }
    bool waits_for(const operation& later, const operation& earlier) const {
        const auto own = own_input_of(later, stash_way_of(*p_, earlier));
        return own && own->kind == earlier.kind;
    }
    std::optional<order> moved(index from, index to) const {
        if (from == to) return std::nullopt;
        auto all = order_now();
        auto& list = all.operations;
        const auto at = [&](index i) { return list.begin() + static_cast<std::ptrdiff_t>(i); };
        if (from < to)
            std::rotate(at(from), at(from + 1), at(to + 1));
        else
            std::rotate(at(to), at(from), at(from + 1));
        return all;
    }

    /// Gives two sequences of as many slices each other's places in the whole order.
    std::optional<order> exchange_sequences() {
        if (p_->microbatches.are_equal()) return std::nullopt;
        const auto slices_from = [&](microbatch m) {
            while (const auto before = p_->microbatches.slice_before(m))
                m = *before;
            std::vector<microbatch> slices{m};
            while (const auto next = p_->microbatches.slice_after(slices.back()))
                slices.push_back(*next);
            return slices;
        };
        const auto a = slices_from(microbatch{random_.below(p_->graph.microbatches())});
        const auto b = slices_from(microbatch{random_.below(p_->graph.microbatches())});
        if (a == b || a.size() != b.size()) return std::nullopt;
        auto all = order_now();
        for (auto& op : all.operations) {
            const auto in = [&](const auto& slices) {
                return op.microbatch >= slices[0] && op.microbatch <= slices.back();
            };
            if (in(a))
                op.microbatch = microbatch{op.microbatch.value() - a[0].value() + b[0].value()};
            else if (in(b))
                op.microbatch = microbatch{op.microbatch.value() - b[0].value() + a[0].value()};
        }
        return all;
    }

    /// Replaces a B by I and W, or I and W by a B.
    std::optional<order> split_or_join() {
        if (!p_->split_backward || !p_->full_backward) return std::nullopt;
        const index at = critical_[random_.below(critical_.size())];
        const auto op = now_.operations[at].op;
        if (p_->costs[op.stage].gradients != gradient_kind::full) return std::nullopt;
        auto all = order_now();
        auto& list = all.operations;
        const auto place = [&](operation_kind kind) { return place_[number_(sibling(op, kind))]; };
        if (const auto full = place(operation_kind::backward); full != none) {
            list[full].kind = operation_kind::backward_input;
            list.insert(list.begin() + static_cast<std::ptrdiff_t>(full + 1),
                        sibling(list[full], operation_kind::backward_weight));
            return all;
        }
        list[place(operation_kind::backward_input)].kind = operation_kind::backward;
        list.erase(list.begin() + static_cast<std::ptrdiff_t>(place(operation_kind::backward_weight)));
        return all;
    }

    /// Stores one stash in another way: its transfers and recomputation come as late, or as early, as they may.
    std::optional<order> change_storage() {
        const auto op = now_.operations[random_.below(now_.operations.size())].op;
        const auto options = p_->storage_options(op.stage);
        if (options < 2) return std::nullopt;
        const auto chosen = static_cast<storage_index>(random_.below(options));
        if (chosen == op.storage) return std::nullopt;
        const auto is_same_cell = [&](const operation& other) {
            return other.stage == op.stage && other.microbatch == op.microbatch;
        };
        order all{p_->graph, {}};
        for (const auto& timed : now_.operations) {
            auto next = timed.op;
            if (!is_same_cell(next)) {
                all.operations.push_back(next);
                continue;
            }
            if (is_transfer(next.kind) || next.kind == operation_kind::recompute) continue;
            next.storage = chosen;
            const auto add = [&](operation_kind kind) {
                if (const auto own = sibling(next, kind); is_possible(*p_, own)) all.operations.push_back(own);
            };
            if (is_gradient(next.kind)) {
                add(operation_kind::reload);
                add(operation_kind::recompute);
            }
            all.operations.push_back(next);
            if (next.kind == operation_kind::forward) add(operation_kind::offload);
        }
        return all;
    }

    static constexpr index none = std::numeric_limits<index>::max();
    static constexpr std::size_t half = 50; // in percent

    search_state* state_;
    const problem* p_;
    order_search_parameters with_;
    std::string_view name_;
    random_numbers random_;
    operation_numbering<any_graph> number_;
    schedule now_{};
    double value_ = 0.0;
    /// The place of each operation in `now_`.
    std::vector<index> place_{};
    /// The places of each rank's computations, in order.
    std::vector<std::vector<index>> lanes_{};
    /// Places on a critical path, last first.
    std::vector<index> critical_{};
};

} // namespace detail

/// Local search over the orders of any problem, from the incumbent on: moves of operations on their lanes, of whole
/// sequences, between B and I with W, and between storage options. Each order is timed anew, so a move takes O(number
/// of operations). Plain problems have `local_search`, whose moves cost far less.
inline void order_search(search_state& state, const order_search_parameters& with, std::string_view name) {
    detail::order_annealer{state, with, name}.run();
}

} // namespace optpipe
