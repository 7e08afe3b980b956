#pragma once

#include "optpipe/core/random.hpp"
#include "optpipe/planner/board.hpp"
#include "optpipe/planner/local_search/critical_path.hpp"
#include "optpipe/planner/local_search/lane_moves.hpp"
#include "optpipe/planner/local_search/lane_objective.hpp"
#include "optpipe/planner/local_search/lane_orders.hpp"
#include "optpipe/planner/local_search/lane_tails.hpp"
#include "optpipe/planner/local_search/lane_times.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <memory>

namespace optpipe::detail {

/// Simulated annealing over the sequences of all ranks, in rounds that become longer, each cooling from a temperature
/// at which a delay of a part of an operation is nothing. What counts is the objective, and a little the mean over the
/// ranks, which tells plans apart whose worst rank is the same.
class annealer {
public:
    using id = flat_pipeline::id;

    annealer(search_board& board, std::uint64_t seed, std::size_t moves)
        : board_{&board}, p_{board.to_solve()}, random_{seed * 0x9e3779b97f4a7c15U + 1}, lanes_{p_}, times_{lanes_},
          objective_{lanes_, times_}, moves_{lanes_, times_}, path_{lanes_, times_}, tails_{lanes_, times_}, spare_{p_},
          spare_times_{spare_}, left_{moves} {}

    /// From the best schedule on the board until the board is done or all moves are spent.
    void run() {
        if (!adopt(*board_->incumbent())) return;
        constexpr double growth = 1.6;
        double length = 3000.0 + 4.0 * static_cast<double>(p_.stages() * p_.microbatches());
        for (std::size_t round = 0; left_ > 0 && !board_->done(); ++round) {
            anneal(round, static_cast<std::size_t>(length));
            offer_best();
            length *= growth;
            restart(round);
        }
    }

private:
    /// Makes a schedule the current state. False if it can't be expressed.
    bool adopt(const schedule& given) {
        spare_.load(given);
        if (!spare_.legal_throughout() || !spare_times_.place_all()) return false;
        go_to(spare_.copy());
        spare_.sort_names();
        if (spare_.legal_throughout() && spare_times_.place_all()) {
            const auto unsorted = objective_.value();
            const auto state = lanes_.copy();
            go_to(spare_.copy());
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
    /// Keeps the current state as the best. On shared links a transfer may stand before what it waits for; then the
    /// lanes are first put into the order of their times.
    void remember() {
        path_uses_ = 0;
        if (p_.channels() > 0) {
            spare_.load(lanes_.copy());
            if (!spare_times_.place_all()) {
                spare_.load(times_.to_schedule(board_->to_solve().graph));
                if (!spare_.legal_throughout() || !spare_times_.place_all()) return;
                go_to(spare_.copy());
                current_ = worth();
            }
        }
        best_ = lanes_.copy();
        best_value_ = objective_.value();
    }
    void offer_best() {
        if (!(best_value_ < board_->target().value())) return;
        spare_.load(best_);
        order found{board_->to_solve().graph, {}};
        spare_times_.place_all([&](id i) { found.operations.push_back(p_.operation_of(i)); });
        board_->offer(found, "local search");
    }

    double worth() const { return objective_.value() + weight_ * objective_.mean(); }

    void anneal(std::size_t round, std::size_t length) {
        constexpr std::size_t between_clocks = 64;
        constexpr std::size_t between_offers = 4096;
        constexpr double weights[] = {0.1, 0.02, 0.3, 0.05};
        constexpr double heats[] = {0.3, 0.06, 0.15, 0.6, 0.1};
        weight_ = weights[(round + random_.below(2)) % 4];
        current_ = worth();
        length = std::min(length, left_);
        const double hot = p_.mean_duration() * heats[(round + random_.below(3)) % 5];
        const double cold = 0.02 * p_.mean_duration();
        const double cooling = std::pow(cold / hot, 1.0 / static_cast<double>(std::max<std::size_t>(length, 1)));
        double temperature = hot;
        for (std::size_t i = 0; i < length; ++i, temperature *= cooling) {
            if (i % between_clocks == 0 && board_->done()) break;
            if (i % between_offers == 0) offer_best();
            --left_;
            step(temperature);
        }
    }
    void step(double temperature) {
        const id i = choose();
        if (!moves_.draw(i, random_) || !lanes_.legal()) {
            lanes_.take_back();
            return;
        }
        const double threshold = current_ - temperature * std::log(uniform());
        if (follow(threshold)) {
            keep();
        } else {
            lanes_.take_back();
            times_.take_back();
        }
    }
    double uniform() { return (static_cast<double>(random_.next() >> 11U) + 0.5) * 0x1p-53; }

    /// An operation of a critical path, or any.
    id choose() {
        constexpr std::size_t uses = 24;
        if (random_.chance(40)) return moves_.random_operation(random_);
        if (path_uses_ == 0) {
            find_path();
            path_uses_ = uses;
        }
        --path_uses_;
        const auto& chain = path_.operations();
        return chain.empty() ? moves_.random_operation(random_) : chain[random_.below(chain.size())];
    }
    void find_path() {
        id worst = 0;
        for (id r = 1; r < p_.ranks(); ++r)
            if (objective_.engaged(r) > objective_.engaged(worst)) worst = r;
        path_.find(lanes_.last_compute(worst));
    }

    bool follow(double threshold) {
        if (tails_age_ == 0) renew_tails();
        double latest = threshold + weight_ * (p_.mean_duration() - objective_.mean());
        if (starts_may_change()) latest += p_.mean_duration();
        const bool done = times_.follow([&](id i, double start) { return start + tails_[i] > latest; }, true);
        if (!done) return false;
        objective_.measure_changes(times_.first_change());
        return worth() <= threshold;
    }
    void renew_tails() {
        constexpr std::size_t good_for = 8;
        tails_.find([&](id r) { return -objective_.kept_first(r); });
        tails_age_ = good_for;
    }
    /// For span: whether the edit may change when ranks start, and so what their ends may be.
    bool starts_may_change() const {
        if (!p_.span()) return false;
        return std::any_of(lanes_.touched().begin(), lanes_.touched().end(), [&](const lane_orders::range& t) {
            return times_.start(lanes_[t.first]) <= objective_.horizon();
        });
    }
    void keep() {
        lanes_.keep();
        times_.keep();
        objective_.keep();
        // Tails of before may be a little wrong; after an improvement they would forbid everything.
        tails_age_ = objective_.value() < value_ ? 0 : tails_age_ - 1;
        value_ = objective_.value();
        current_ = worth();
        if (objective_.value() < best_value_ - board_->slack().value()) remember();
    }
    /// What another part has found meanwhile, if it is better; else mostly the own best again.
    void restart(std::size_t round) {
        if (board_->objective().value() < best_value_ - board_->slack().value() && adopt(*board_->incumbent())) return;
        if (round % 3 != 2) go_to(best_);
    }

    search_board* board_;
    flat_pipeline p_;
    random_numbers random_;
    lane_orders lanes_;
    lane_times times_;
    lane_objective objective_;
    lane_moves moves_;
    critical_path path_;
    lane_tails tails_;
    lane_orders spare_;
    lane_times spare_times_;
    lane_orders::sequences best_;
    std::size_t left_;
    double weight_ = 0.1;
    double current_ = 0.0;
    double value_ = 0.0;
    double best_value_ = lane_times::never;
    std::size_t path_uses_ = 0;
    std::size_t tails_age_ = 0;
};

} // namespace optpipe::detail
