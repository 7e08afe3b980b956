#pragma once

#include "optpipe/core/random.hpp"
#include "optpipe/pipeline/problem.hpp"
#include "optpipe/pipeline/sequences.hpp"
#include "optpipe/planner/flat_problem.hpp"
#include "optpipe/planner/order_search/timed_order.hpp"
#include "optpipe/planner/order_search/window_moves.hpp"
#include "optpipe/planner/portfolio/search_state.hpp"
#include "optpipe/schedule/operation.hpp"
#include "optpipe/schedule/rules/storage_of_transfers.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

namespace optpipe {

/// The parameters of `order_search`, which are the same for every problem. Not tuned.
struct order_search_parameters {
    std::uint64_t seed = 1;
    /// Number of orders that are tried.
    std::size_t moves = std::numeric_limits<std::size_t>::max();
    /// The first and the last temperature of a round, as shares of the objective.
    double first_temperature = 4e-3;
    double last_temperature = 1e-4;
    /// In problems without pairs, a round with fewer than `enough_moves` moves per operation begins at a temperature
    /// that is lower in proportion, but at most down to `least_first_temperature`. Compared with one first temperature
    /// for all rounds, steps of 27 runs with slices were 1.0 % shorter after 20,000 moves and 0.6 % after 140,000.
    /// Steps of 26 runs with unequal microbatches or graphs were 0.4 % and 0.1 % shorter.
    double enough_moves = 100.0;
    double least_first_temperature = 1e-3;
    /// In problems with pairs, half of the rounds that aren't cold begin at this multiple of `first_temperature`. High
    /// temperatures are needed: splitting a pair makes the step longer until its parts are in other pairs. Not tuned.
    double hot_round = 8.0;
    /// First and last temperature of a cold round. If the problem has pairs, every second round is cold, beginning with
    /// the first round. Compared with a first temperature of 1e-3, steps are up to 0.4 % shorter (150,000 moves from
    /// published schedules).
    double coldest_first = 3e-4;
    double coldest_last = 1e-5;
    /// Number of moves in a round, from its first to its last temperature. A round has at most `moves` moves. After a
    /// round, the search starts anew from the best order.
    std::size_t moves_of_round = 300'000;
    /// The largest number of positions by which an operation moves on its lane.
    std::size_t farthest = 6;
    /// On average, one move in `moves_per_other` exchanges sequences, one splits or joins a backward, and one changes a
    /// storage option. All other moves shift an operation on its lane. Must be above 2.
    std::size_t moves_per_other = 16;
    /// In problems with pairs, this percentage of the shifts on a lane becomes moves that make, split or exchange
    /// pairs.
    std::size_t percent_pairs = 40;
    /// Percentage of moves that change several microbatches in the same way. Moves of several microbatches are made
    /// only if the problem has pairs and no operation waits for memory. A move of several microbatches takes about
    /// seven times as long as a move of one microbatch. With 150,000 moves, plans of 72 random problems were as short
    /// with 2 % as with 10 %, in 0.7 times the time. With 4 ranks × 16 microbatches, pairs of length 2.75 and the
    /// memory of DualPipeV, the best step took 95.25 with 0 %. With other percentages, the best step took 93.75 to
    /// 94.5.
    std::size_t percent_windows = 2;
    /// Percentage of moves that begin at a critical operation.
    std::size_t percent_critical = 75;
    /// Weight with which the mean end of the ranks is added to the objective. Among orders with equal objectives, the
    /// order with the earlier mean end costs less.
    double weight_of_mean = 1e-3;
    /// Whether there is only one round, which lasts until the deadline.
    bool until_deadline = false;
    /// `search_from_start` of `plan_search` improves a start for this time, with some thousand moves.
    /// `temperature_of_start` is the first temperature of the order search that improves the start. On 32 random
    /// problems (8 ranks, 32 microbatches), steps were 0.2 % shorter on average with 2e-4 than with 5e-4.
    /// `percent_critical_of_start` is its `percent_critical`. In 112 runs on problems of this size with long idle
    /// times, steps were 0.5 % shorter on average with 90 than with 75. In 56 runs with shorter idle times, they were
    /// 0.1 % shorter.
    std::chrono::duration<double> moment{0.1};
    double temperature_of_start = 2e-4;
    std::size_t percent_critical_of_start = 90;
    /// The largest number of distinct pairs on a rank (`plan_options::most_distinct_pairs`).
    std::size_t most_distinct_pairs = std::numeric_limits<std::size_t>::max();
};

namespace detail {

/// Simulated annealing over complete orders. Works for any graph and any microbatches.
class order_annealer {
public:
    order_annealer(search_state& state, const order_search_parameters& with, std::string_view name)
        : state_{&state}, p_{&state.problem()}, with_{with}, name_{name}, random_{with.seed},
          order_{*p_, with.weight_of_mean}, windows_{*p_, random_}, sequences_{sequences_of(*p_)} {}

    void run() {
        std::size_t left = with_.moves;
        for (std::size_t i = 0; left > 0 && !state_->done(); ++i) {
            const auto start = state_->incumbent();
            if (!start || !order_.take(*start)) return;
            const auto round = with_.until_deadline ? left : std::min(left, most_in_round());
            anneal(round, temperatures_of_round(i, round));
            offer_best();
            left -= round;
        }
    }

private:
    using index = std::size_t;
    using id = flat_problem::id;

    [[nodiscard]] const flat_problem& flat() const { return order_.flat(); }
    [[nodiscard]] const cell_choices& cells() const { return order_.cells(); }

    /// Temperatures, as shares of the objective.
    struct temperatures {
        double first;
        double last;
    };

    /// The largest number of moves in a round. If the problem has pairs, a call has at least two rounds, and the first
    /// round is cold.
    [[nodiscard]] std::size_t most_in_round() const {
        return p_->overlaps.empty() ? with_.moves_of_round : std::min(with_.moves_of_round, with_.moves / 2 + 1);
    }
    [[nodiscard]] temperatures temperatures_of_round(std::size_t i, std::size_t moves) {
        const temperatures usual{with_.first_temperature, with_.last_temperature};
        if (with_.until_deadline) return usual;
        if (p_->overlaps.empty()) return {first_temperature_of(moves), usual.last};
        if (i % 2 == 0) return {with_.coldest_first, with_.coldest_last};
        return random_.chance(half) ? usual : temperatures{with_.hot_round * usual.first, usual.last};
    }
    [[nodiscard]] double first_temperature_of(std::size_t moves) const {
        const double most = with_.first_temperature;
        const double enough = with_.enough_moves * static_cast<double>(order_.size());
        return std::clamp(most * static_cast<double>(moves) / enough, std::min(most, with_.least_first_temperature),
                          most);
    }
    void anneal(index moves, const temperatures& falling) {
        const double begin = falling.first * order_.value();
        const double seconds = with_.until_deadline ? state_->seconds_left() : 0.0;
        const double ratio = falling.last / falling.first;
        best_ = state_->target().value();
        constexpr index between_looks = 256;
        double temperature = begin;
        for (index i = 0; i < moves; ++i) {
            if (i % between_looks == 0) {
                offer_best();
                if (state_->done()) return;
                const double passed = with_.until_deadline ? 1.0 - state_->seconds_left() / seconds
                                                           : static_cast<double>(i) / static_cast<double>(moves);
                temperature = begin * std::pow(ratio, passed);
            }
            if (!edit()) continue;
            if (!order_.has_few_pairs(with_.most_distinct_pairs)) {
                order_.undo();
                continue;
            }
            const double most = order_.value() - temperature * std::log(1.0 - random_.share());
            if (order_.retime(most) == timed_order::never) {
                order_.undo();
                continue;
            }
            order_.keep();
            if (order_.objective() < best_) {
                best_ = order_.objective();
                found_ = order_.to_order();
            }
        }
    }
    /// Offers the best order since the last call.
    void offer_best() {
        if (!found_) return;
        state_->offer(*found_, name_);
        found_.reset();
    }

    /// Draws an edit and applies it to the order. Returns false, with nothing changed, if the drawn edit isn't
    /// possible.
    bool edit() {
        if (!p_->overlaps.empty() && !flat().memory_delays() && random_.chance(with_.percent_windows))
            return windows_.edit(order_, some_place());
        switch (random_.below(with_.moves_per_other)) {
        case 0: return exchange_sequences();
        case 1: return split_or_join();
        case 2: return change_storage();
        default: break;
        }
        const bool is_about_pairs = !p_->overlaps.empty() && random_.chance(with_.percent_pairs);
        return is_about_pairs ? change_pair() : move_on_lane();
    }

    /// Draws a position in the order. Splits the pair at this position, gives one part another partner, or makes a pair
    /// with a nearby operation.
    bool change_pair() {
        const index at = order_.first_place(some_place());
        const id op = order_[at];
        if (!flat().is_forward(op) && !flat().is_gradient(op)) return false;
        const bool is_pair = order_.partner(op) != flat_problem::none;
        if (is_pair && random_.chance(half)) {
            order_.split(at, random_.chance(half));
            return true;
        }
        const index kept = is_pair && random_.chance(half) ? at + 1 : at;
        const auto other = some_partner(kept);
        if (!other) return false;
        if (is_pair) return exchange_parts(kept == at ? at + 1 : at, *other);
        return order_.partner(order_[*other]) == flat_problem::none && merge(at, *other);
    }
    /// A forward and a backward.
    struct parts {
        id f;
        id b;
    };
    [[nodiscard]] parts parts_of(id one, id other) const {
        return flat().is_forward(one) ? parts{one, other} : parts{other, one};
    }
    /// Whether two operations can be in a pair if any kind of backward may be chosen.
    [[nodiscard]] bool may_pair(id one, id other) const {
        const auto [f, b] = parts_of(one, other);
        return flat().cell_of(f) != flat().cell_of(b) &&
               (cells().overlap_of(f, b) || cells().overlap_of_other_kind(f, b));
    }
    /// The position of a random operation near `at` on the lane that can form a new pair with the operation at `at`.
    /// Empty if there is no possible partner.
    std::optional<index> some_partner(index at) {
        const id op = order_[at];
        const bool earlier = random_.chance(half);
        index left = random_.between(1, with_.farthest);
        std::optional<index> found;
        const index end = earlier ? 0 : order_.size() - 1;
        for (index i = earlier ? order_.first_place(at) : order_.last_place(at); i != end && left > 0;) {
            i = earlier ? i - 1 : i + 1;
            const id other = order_[i];
            if (cells()[other].lane != cells()[op].lane || !may_pair(op, other)) continue;
            found = i;
            --left;
        }
        return found;
    }
    /// Makes a pair of the single operations at two positions, at one of the two positions.
    bool merge(index at, index other) {
        const parts both = parts_of(order_[at], order_[other]);
        const bool has_kind = cells().overlap_of(both.f, both.b) != nullptr;
        if (!order_.merge(std::min(at, other), std::max(at, other), random_.chance(half))) return false;
        if (!has_kind) order_.edit_further([&](std::vector<id>& all) { split_or_join(both.b, all); });
        return true;
    }
    /// Exchanges the part of a pair at `at` with the operation of the same kind at `other`.
    bool exchange_parts(index at, index other) {
        const id one = order_[at];
        const id two = order_[other];
        const id partner_of_one = order_.partner(one);
        const id partner_of_two = order_.partner(two);
        if (partner_of_two != flat_problem::none && !may_pair(one, partner_of_two)) return false;
        order_.edit_all([&](std::vector<id>& all) {
            std::swap(all[at], all[other]);
            order_.set_partner(one, flat_problem::none);
            join_parts(two, partner_of_one, all);
            if (partner_of_two != flat_problem::none) join_parts(one, partner_of_two, all);
        });
        return true;
    }
    /// Makes two neighbours a pair, as part of an edit of the order. If the problem has no pair of the two operations,
    /// the kind of the backward changes.
    void join_parts(id one, id other, std::vector<id>& all) {
        const auto [f, b] = parts_of(one, other);
        order_.set_partner(f, b);
        if (!cells().overlap_of(f, b)) split_or_join(b, all);
    }

    /// A random position in the order, often that of a critical operation.
    index some_place() {
        constexpr int tries = 64; // enough unless only few operations are critical; not tuned
        const bool is_critical = random_.chance(with_.percent_critical);
        index at = random_.below(order_.size());
        for (int i = 0; is_critical && i < tries && !order_.is_critical(at); ++i)
            at = random_.below(order_.size());
        return at;
    }
    /// Moves an operation some positions forward or back on its lane.
    bool move_on_lane() {
        const index at = some_place();
        const auto& f = cells()[order_[at]];
        const bool is_transfer = f.lane >= p_->graph.ranks();
        const auto by = random_.between(1, is_transfer ? 4 * with_.farthest : with_.farthest);
        const bool earlier = random_.chance(half);
        index target = at;
        index left = by;
        const index end = earlier ? 0 : order_.size() - 1;
        for (index i = earlier ? order_.first_place(at) : order_.last_place(at); i != end && left > 0;) {
            i = earlier ? i - 1 : i + 1;
            if (!is_transfer && cells()[order_[i]].lane != f.lane) continue;
            target = i;
            --left;
        }
        if (target == at) return false;
        return earlier ? order_.move_before(at, target) : order_.move_behind(at, target);
    }

    /// Exchanges two sequences that have the same number of slices. Each slice of one sequence changes places with the
    /// same slice of the other sequence.
    bool exchange_sequences() {
        if (p_->microbatches.are_equal()) return false;
        const auto& a = sequences_[random_.below(sequences_.size())];
        const auto& b = sequences_[random_.below(sequences_.size())];
        if (&a == &b || a.size() != b.size()) return false;
        const auto pairs = pairs_in_order();
        order_.edit_all([&](std::vector<id>& all) {
            const auto first_of_a = static_cast<id>(a.front().value());
            const auto first_of_b = static_cast<id>(b.front().value());
            const auto length = static_cast<id>(a.size());
            for (auto& op : all) {
                const id m = flat().microbatch_of(op);
                if (m >= first_of_a && m < first_of_a + length)
                    op += first_of_b - first_of_a;
                else if (m >= first_of_b && m < first_of_b + length)
                    op += first_of_a - first_of_b;
            }
        });
        for (index k = 0; k < a.size(); ++k)
            for (const stage s : p_->graph.all_stages()) {
                const auto x = flat().cell_of(s, a[k]);
                const auto y = flat().cell_of(s, b[k]);
                const auto chosen = cells().choice(x);
                if (chosen == cells().choice(y)) continue;
                order_.choose(x, cells().choice(y));
                order_.choose(y, chosen);
            }
        mark_pairs(pairs);
        return true;
    }
    /// The positions at which pairs begin.
    std::vector<index> pairs_in_order() const {
        std::vector<index> places;
        if (p_->overlaps.empty()) return places;
        for (index i = 0; i < order_.size(); ++i)
            if (order_.last_place(i) != i) places.push_back(i);
        return places;
    }
    /// Makes pairs at these positions, and no others. Call `mark_pairs` within an edit, once the operations are at
    /// these positions.
    void mark_pairs(const std::vector<index>& places) {
        if (p_->overlaps.empty()) return;
        for (index i = 0; i < order_.size(); ++i)
            if (order_.partner(order_[i]) != flat_problem::none) order_.set_partner(order_[i], flat_problem::none);
        for (const index i : places)
            order_.set_partner(order_[i], order_[i + 1]);
    }

    /// Replaces a B by I and W, or I and W by a B. A pair stays a pair if the problem has a pair with the new backward.
    bool split_or_join() {
        if (!p_->split_backward || !p_->full_backward) return false;
        const id op = order_[some_place()];
        const id gradient = flat().gradient_of(flat().cell_of(op));
        if (!flat().may_split_or_join(gradient)) return false;
        const id other = order_.partner(gradient);
        if (other != flat_problem::none && !cells().overlap_of_other_kind(other, gradient)) return false;
        order_.edit_all([&](std::vector<id>& all) { split_or_join(gradient, all); });
        return true;
    }
    /// Replaces a B by I and W, or I and W by a B, as part of an edit of the order. A new W comes right after its I, or
    /// after the I's pair.
    void split_or_join(id gradient, std::vector<id>& all) {
        const auto cell = flat().cell_of(gradient);
        auto chosen = cells().choice(cell);
        const id weight = flat().weight_of(cell);
        if (chosen.is_split)
            std::erase(all, weight);
        else
            all.insert(std::find(all.begin(), all.end(), gradient) + 1, weight);
        chosen.is_split = !chosen.is_split;
        order_.choose(cell, chosen);
    }

    /// Changes the storage option of one stash. An offload is placed right after the forward, and a reload right before
    /// the backward. A recomputation also comes right before the backward.
    bool change_storage() {
        const auto op = cells().operation_of(order_[random_.below(order_.size())]);
        const auto options = p_->storage_options(op.stage);
        if (options < 2) return false;
        const auto cell = flat().cell_of(op.stage, op.microbatch);
        auto chosen = cells().choice(cell);
        chosen.storage = static_cast<storage_index>(random_.below(options));
        if (chosen == cells().choice(cell)) return false;
        auto stored = op;
        stored.storage = chosen.storage;
        order_.edit_all([&](std::vector<id>& all) { replace_storage(all, stored); });
        order_.choose(cell, chosen);
        return true;
    }
    /// Replaces the transfers and the recomputation of a cell by those of the storage option of `stored`.
    void replace_storage(std::vector<id>& all, const operation& stored) {
        const auto as = [&](operation_kind kind) { return flat().number(sibling(stored, kind)); };
        const id first = as(operation_kind::forward);
        const id gradient = as(operation_kind::backward_input);
        // No operation may come between the two parts of a pair.
        const id before = order_.partner(gradient) != flat_problem::none ? order_.partner(gradient) : gradient;
        const id behind = order_.partner(first) != flat_problem::none ? order_.partner(first) : first;
        const auto add = [&](operation_kind kind) {
            if (is_possible(*p_, sibling(stored, kind))) all.push_back(as(kind));
        };
        scratch_ = all;
        all.clear();
        for (const id op : scratch_) {
            if (op == as(operation_kind::offload) || op == as(operation_kind::reload) ||
                op == as(operation_kind::recompute))
                continue;
            if (op == before) {
                add(operation_kind::reload);
                add(operation_kind::recompute);
            }
            all.push_back(op);
            if (op == behind) add(operation_kind::offload);
        }
    }

    static constexpr std::size_t half = 50; // in percent

    search_state* state_;
    const problem* p_;
    order_search_parameters with_;
    std::string_view name_;
    random_numbers random_;
    timed_order order_;
    window_moves windows_;
    std::vector<std::vector<microbatch>> sequences_;
    /// `best_` is the objective to improve on. `found_` is the best order that hasn't been offered yet. If `found_` has
    /// an order, `best_` is the order's objective.
    double best_ = 0.0;
    std::optional<order> found_{};
    std::vector<id> scratch_{};
};

} // namespace detail

/// Simulated annealing over the orders of any problem, starting from the incumbent. A move shifts an operation,
/// exchanges sequences, splits or joins a backward, changes a storage option, or makes, splits or exchanges pairs. The
/// time of a move is at most linear in the number of operations, and shorter for most rejected moves.
inline void order_search(search_state& state, const order_search_parameters& with, std::string_view name) {
    detail::order_annealer{state, with, name}.run();
}

} // namespace optpipe
