#pragma once

#include "optpipe/core/random.hpp"
#include "optpipe/planner/local_search/critical_path.hpp"
#include "optpipe/planner/local_search/lane_moves.hpp"
#include "optpipe/planner/local_search/lane_objective.hpp"
#include "optpipe/planner/local_search/lane_orders.hpp"
#include "optpipe/planner/local_search/lane_tails.hpp"
#include "optpipe/planner/local_search/lane_times.hpp"
#include "optpipe/planner/local_search/parameters.hpp"
#include "optpipe/planner/portfolio/search_state.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <memory>

namespace optpipe::detail {

/// Simulated annealing over the sequences of all ranks, in rounds of growing length. The first temperature of a round
/// accepts a delay by a fraction of an operation's duration. The cost is the objective plus a small weight times the
/// mean of the ranks' times. The mean distinguishes states with the same worst rank.
class annealer {
public:
    using id = flat_problem::id;

    annealer(search_state& state, std::uint64_t seed, std::size_t moves, const local_search_parameters& with = {})
        : state_{&state}, with_{with.annealing}, p_{state.problem()}, random_{seed * 0x9e3779b97f4a7c15U + 1},
          lanes_{p_}, times_{lanes_}, objective_{lanes_, times_}, moves_{lanes_, times_, with.moves}, path_{lanes_,
                                                                                                            times_},
          tails_{lanes_, times_}, scratch_{p_}, scratch_times_{scratch_}, left_{moves}, seed_{seed} {}

    /// Anneals from the incumbent until the search has finished or all moves are made.
    void run() {
        if (!start_from(*state_->incumbent())) return;
        double length = with_.first_round_of(cells());
        for (std::size_t round = 0; left_ > 0 && !state_->done(); ++round) {
            anneal(round, static_cast<std::size_t>(length));
            if (best_value_ < descended_from_) descend();
            offer_best();
            if (state_->done()) return;
            length *= with_.round_growth;
            restart(round);
        }
    }

private:
    /// Makes a schedule the current state. Returns false if the schedule can't be represented.
    bool start_from(const schedule& given) {
        scratch_.load(given);
        if (state_->abandoned() || !scratch_.all_legal() || !scratch_times_.place_all()) return false;
        if (state_->abandoned()) return false;
        go_to(scratch_.copy());
        scratch_.sort_microbatches();
        if (state_->abandoned()) return false;
        if (scratch_.all_legal() && scratch_times_.place_all()) {
            const auto unsorted = objective_.value();
            const auto state = lanes_.copy();
            go_to(scratch_.copy());
            if (objective_.value() > unsorted) go_to(state);
        }
        if (objective_.value() < best_value_) remember();
        return true;
    }
    void go_to(const lane_orders::sequences& state) {
        lanes_.load(state);
        times_.place_all();
        objective_.measure();
        value_ = objective_.value();
        path_uses_ = tails_age_ = 0;
    }
    /// Records the current state as the best. If the order of the lanes isn't executable, the lanes are first sorted by
    /// start. The order isn't executable if a transfer on a shared link starts before its predecessor on the lane.
    void remember() {
        path_uses_ = 0;
        if (p_.channels() > 0) {
            scratch_.load(lanes_.copy());
            if (!scratch_times_.place_all()) {
                scratch_.load(times_.to_schedule(state_->problem().graph));
                if (!scratch_.all_legal() || !scratch_times_.place_all()) return;
                go_to(scratch_.copy());
                current_ = cost();
            }
        }
        best_ = lanes_.copy();
        best_value_ = objective_.value();
    }
    void offer_best() {
        if (!(best_value_ < state_->target().value())) return;
        scratch_.load(best_);
        order found{state_->problem().graph, {}};
        scratch_times_.place_all([&](id i) { found.operations.push_back(scratch_.operation_of(i)); });
        state_->offer(found, "local search");
    }

    double cost() const { return objective_.value() + weight_ * objective_.mean(); }

    void anneal(std::size_t round, std::size_t length) {
        const auto between_clocks =
            std::clamp<std::size_t>(with_.cells_between_clocks / cells(), 1, with_.most_moves_between_clocks);
        lanes_.keep_fifo(!p_.trades_time() || (round + seed_) % 2 == 1);
        weight_ = with_.mean_weights[(round + random_.below(2)) % with_.mean_weights.size()];
        current_ = cost();
        length = std::min(length, left_);
        const double hot = p_.mean_duration() * with_.hot[(round + random_.below(3)) % with_.hot.size()];
        const double cold = with_.cold * p_.mean_duration();
        const double cooling = std::pow(cold / hot, 1.0 / static_cast<double>(std::max<std::size_t>(length, 1)));
        double temperature = hot;
        for (std::size_t i = 0; i < length; ++i, temperature *= cooling) {
            if (i % between_clocks == 0 && state_->done()) break;
            if (i % with_.moves_between_offers == 0) offer_best();
            --left_;
            step(temperature);
        }
    }
    void step(double temperature) {
        const bool is_proposed =
            random_.chance(with_.leave_block_chance) ? leave_block() : moves_.propose(choose(), random_);
        accept(is_proposed, current_ - temperature * std::log(uniform()));
    }
    /// Keeps the proposed move if it changes something and costs at most `most`. Undoes any other move, and returns
    /// false. If a move takes too much memory, one of the stashes in memory gets another storage option. A move with
    /// another option must cost less than the current state. Otherwise stashes would drift to options with less and
    /// less memory on the device.
    bool accept(bool is_proposed, double most) {
        if (is_proposed && !lanes_.legal()) {
            is_proposed = p_.chooses_storage() && random_.chance(with_.relief_chance) && moves_.relieve(random_) &&
                          lanes_.legal();
            most = std::min(most, current_ - state_->slack().value());
        }
        if (!is_proposed) {
            lanes_.rollback();
            return false;
        }
        if (!propagate(most)) {
            lanes_.rollback();
            times_.rollback();
            return false;
        }
        commit();
        return true;
    }
    /// Descends from the best state. Tries storage options that take less of the rank's time, and keeps those that
    /// don't raise the cost.
    void descend() {
        if (!p_.trades_time()) return;
        go_to(best_);
        current_ = cost();
        const auto all = static_cast<id>(cells());
        auto at = static_cast<id>(random_.below(cells()));
        for (id unchanged = 0; unchanged < all; at = (at + 1) % all, ++unchanged) {
            if (state_->done()) return;
            const id i = p_.number(at / p_.microbatches(), operation_kind::forward, at % p_.microbatches());
            const id s = p_.stage_of(i);
            for (id option = 0; option < p_.options(s); ++option) {
                if (p_.option(s, option).extra_work >= p_.option(s, lanes_.storage(i)).extra_work) continue;
                if (left_ == 0) return;
                --left_;
                if (accept(moves_.set_storage(i, option, random_), current_)) unchanged = 0;
            }
        }
        descended_from_ = best_value_;
    }
    double uniform() { return (static_cast<double>(random_.next() >> 11U) + 0.5) * 0x1p-53; }

    /// Chooses a random operation of a critical path, or sometimes any operation.
    id choose() {
        if (random_.chance(with_.anywhere_chance)) return moves_.random_operation(random_);
        refresh_path();
        const auto& chain = path_.operations();
        return chain.empty() ? moves_.random_operation(random_) : chain[random_.below(chain.size())];
    }
    void refresh_path() {
        if (path_uses_ == 0) {
            find_path();
            path_uses_ = with_.uses_of_path;
        }
        --path_uses_;
    }
    /// Moves an operation near one end of a block of the critical path out of the block. Moves within a block can't
    /// shorten the path (Balas and Vazacopoulos 1998; N6 of job-shop scheduling).
    bool leave_block() {
        refresh_path();
        const auto& chain = path_.operations();
        if (chain.empty()) return false;
        const auto block = path_.block_around(random_.below(chain.size()));
        const auto farthest = std::min(block.first - block.last, with_.farthest_from_end_of_block);
        if (farthest == 0) return false;
        const auto away = random_.between(1, farthest);
        return random_.below(2) == 0 ? moves_.shift_past(chain[block.last + away], chain[block.last], true)
                                     : moves_.shift_past(chain[block.first - away], chain[block.first], false);
    }
    void find_path() {
        id worst = 0;
        for (id r = 1; r < p_.ranks(); ++r)
            if (objective_.engaged(r) > objective_.engaged(worst)) worst = r;
        path_.find(lanes_.last_compute(worst));
    }

    bool propagate(double threshold) {
        if (tails_age_ == 0) update_tails();
        double latest = threshold + weight_ * (p_.mean_duration() - objective_.mean());
        if (starts_may_change()) latest += p_.mean_duration();
        const bool done = times_.propagate([&](id i, double start) { return start + tails_[i] > latest; }, true);
        if (!done) return false;
        objective_.measure_changes(times_.first_change());
        return cost() <= threshold;
    }
    void update_tails() {
        tails_.find([&](id r) { return -objective_.committed_first(r); });
        tails_age_ = with_.uses_of_tails;
    }
    /// For `span`, whether the edit may change a rank's first start. The first start limits the rank's last end.
    bool starts_may_change() const {
        if (!p_.span()) return false;
        return std::any_of(lanes_.touched().begin(), lanes_.touched().end(), [&](const lane_orders::range& t) {
            return times_.start(lanes_[t.first]) <= objective_.horizon();
        });
    }
    void commit() {
        lanes_.commit();
        times_.commit();
        objective_.commit();
        // Old tails may be slightly wrong. After an improvement, wrong tails would cause every move to be rejected.
        tails_age_ = objective_.value() < value_ ? 0 : tails_age_ - 1;
        value_ = objective_.value();
        current_ = cost();
        if (objective_.value() < best_value_ - state_->slack().value()) remember();
    }
    /// Continues from another strategy's incumbent if it is better. If there is no better incumbent, most rounds
    /// continue from the annealer's own best state.
    void restart(std::size_t round) {
        if (state_->objective().value() < best_value_ - state_->slack().value() && start_from(*state_->incumbent()))
            return;
        if (round % with_.rounds_per_wandering != with_.rounds_per_wandering - 1) go_to(best_);
    }

    std::size_t cells() const { return p_.cells(); }

    search_state* state_;
    annealing_parameters with_;
    flat_problem p_;
    random_numbers random_;
    lane_orders lanes_;
    lane_times times_;
    lane_objective objective_;
    lane_moves moves_;
    critical_path path_;
    lane_tails tails_;
    lane_orders scratch_;
    lane_times scratch_times_;
    lane_orders::sequences best_;
    std::size_t left_;
    std::uint64_t seed_;
    double weight_ = with_.mean_weights.front();
    double current_ = 0.0;
    double value_ = 0.0;
    double best_value_ = lane_times::never;
    double descended_from_ = lane_times::never; ///< best value after the last descent
    std::size_t path_uses_ = 0;
    std::size_t tails_age_ = 0;
};

} // namespace optpipe::detail
