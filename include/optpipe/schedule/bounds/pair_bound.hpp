#pragma once

#include "optpipe/core/quantity.hpp"
#include "optpipe/core/tolerance.hpp"
#include "optpipe/pipeline/problem.hpp"
#include "optpipe/schedule/bounds/chain_maker.hpp"
#include "optpipe/schedule/bounds/chain_paths.hpp"
#include "optpipe/schedule/bounds/one_machine.hpp"
#include "optpipe/schedule/bounds/pair_prices.hpp"
#include "optpipe/schedule/operation.hpp"

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

namespace optpipe::detail {

/// Items with an amount and a price each. A fraction of an item has the same fraction of its price.
class fractional_knapsack {
public:
    void add(double amount, double price) {
        if (amount > 0.0) things_.emplace_back(price / amount, amount);
    }
    /// The least price for which items with a total amount of `amount` can be taken. If all items together have less
    /// than `amount`, returns the price of all items.
    [[nodiscard]] double least_price(double amount) {
        std::sort(things_.begin(), things_.end());
        double sum = 0.0;
        for (const auto& [ratio, size] : things_) {
            const double taken = std::min(amount, size);
            if (taken <= 0.0) break;
            sum += ratio * taken;
            amount -= taken;
        }
        return sum;
    }
    /// The largest total amount that can be taken for `price`.
    [[nodiscard]] double most_amount(double price) {
        std::sort(things_.begin(), things_.end());
        double sum = 0.0;
        for (const auto& [ratio, size] : things_) {
            const double taken = ratio > 0.0 ? std::min(size, price / ratio) : size;
            if (taken <= 0.0) break;
            sum += taken;
            price -= ratio * taken;
        }
        return sum;
    }

private:
    std::vector<std::pair<double, double>> things_{};
};

/// Lower bounds on the objective, derived from one rank that runs pairs.
///
/// Each operation has a price (`prices_of_pairs`). A pair saves at most the sum of its operations' prices. Therefore
/// the rank works for at least the duration of all its operations minus all prices. Operations outside of pairs save
/// nothing, so their prices are added back. Forwards before the earliest backward, and backwards after the last
/// forward, are outside of pairs. No more forwards run before the first backward than fit in memory. The times before
/// the first backward and after the last forward get the operations with the lowest prices.
class pair_bound {
public:
    /// Contract: `chains` knows the operations of all sequences (`share_chains`).
    pair_bound(const problem& p, const chain_maker& chains, const chain_paths& paths, rank r)
        : p_{&p}, chains_{&chains}, paths_{&paths}, rank_{r}, cells_{pairable_cells_of(p, r)}, prices_{prices_of_pairs(
                                                                                                   p, cells_)} {
        for (const stage s : p.graph.all_stages())
            if (p.rank_of(s) == r) add_paths(s);
    }

    /// A lower bound on the rank's busy time: its work minus the most that pairs save. The rank's first forward is in
    /// no pair. If all stages of the rank have backwards, the rank's last backward is in no pair.
    [[nodiscard]] duration work() const {
        duration best{};
        for (const auto& each : prices_)
            best = std::max(best, duration{left(each) + least_row(each) + least_column(each)});
        return best;
    }
    /// A lower bound on the makespan.
    [[nodiscard]] duration makespan() const {
        duration best{};
        for (const auto& each : prices_) {
            best = std::max(best, one_machine_bound(jobs(each)));
            if (cells_.backwards.empty()) continue;
            best = std::max(best, duration{std::min(with_mixture(each), one_after_the_other())});
        }
        return best;
    }

private:
    [[nodiscard]] duration head(const operation& op) const { return duration{paths_->head(chains_->chain_of(op))}; }
    [[nodiscard]] duration tail(const operation& op) const { return duration{paths_->tail(chains_->chain_of(op))}; }
    /// The least duration of an operation over all storage options.
    [[nodiscard]] duration length(const operation& op) const {
        return duration{chains_->made().length[chains_->chain_of(op)]};
    }
    /// I if the backward of the stage may be split, else B.
    [[nodiscard]] operation gradient(stage s, microbatch m) const {
        return may_split(*p_, s) ? backward_input(s, m) : backward(s, m);
    }
    [[nodiscard]] bool has_gradient(stage s) const { return p_->costs[s].gradients != gradient_kind::none; }

    void add_paths(stage s) {
        for (const microbatch m : p_->graph.all_microbatches()) {
            const auto f = forward(s, m);
            first_forward_ = std::min(first_forward_, head(f));
            after_forward_ = std::min(after_forward_, tail(f));
            forwards_ += p_->cost(s, m).forward.value();
            if (!has_gradient(s)) continue;
            const auto b = gradient(s, m);
            first_backward_ = std::min(first_backward_, head(b));
            const bool has_weight =
                b.kind == operation_kind::backward_input && p_->costs[s].gradients == gradient_kind::full;
            after_backward_ = has_weight ? duration{} : std::min(after_backward_, tail(b));
        }
    }
    /// The work of the rank minus all prices.
    [[nodiscard]] double left(const assignment_prices& of) const {
        double sum = 0.0;
        for (const double price : of.of_row)
            sum += price;
        for (const double price : of.of_column)
            sum += price;
        return p_->load(rank_).value() - cells_.count * sum;
    }
    [[nodiscard]] static double least(const std::vector<double>& of) {
        return of.empty() ? 0.0 : *std::min_element(of.begin(), of.end());
    }
    [[nodiscard]] static double least_row(const assignment_prices& of) { return least(of.of_row); }
    [[nodiscard]] double least_column(const assignment_prices& of) const {
        // The last backward may be in a pair with a forward that no backward follows.
        return cells_.backwards.size() == cells_.forwards.size() ? least(of.of_column) : 0.0;
    }

    /// The bound on the makespan if some forward ends after some backward starts.
    [[nodiscard]] double with_mixture(const assignment_prices& of) const {
        const double at_begin = (first_backward_ - first_forward_).value();
        const double filled = std::min({at_begin, forwards_, most_forwards_in_memory()});
        // A forward without a gradient may be the rank's last operation.
        const auto after = std::min(after_forward_, after_backward_);
        const double at_end = (after_forward_ - after).value();
        const double unpaired_first = std::max(least_row(of), at_begin - filled + forwards_at_begin(of, filled));
        const double unpaired_last = std::max(least_column(of), backwards_at_end(of, at_end));
        return first_forward_.value() + unpaired_first + left(of) + unpaired_last + after.value();
    }
    [[nodiscard]] double forwards_at_begin(const assignment_prices& of, double amount) const {
        fractional_knapsack all;
        for (std::size_t i = 0; i < cells_.forwards.size(); ++i) {
            const auto& cell = cells_.forwards[i];
            all.add(cells_.count * p_->cost(cell.stage, cell.microbatch).forward.value(), cells_.count * of.of_row[i]);
        }
        return all.least_price(amount);
    }
    /// The least price of backwards that take `amount` of time after the last forward. If I may be in a pair, its W
    /// fills a part of `amount` at no price.
    [[nodiscard]] double backwards_at_end(const assignment_prices& of, double amount) const {
        fractional_knapsack all;
        for (std::size_t j = 0; j < cells_.backwards.size(); ++j) {
            const auto& cell = cells_.backwards[j];
            const auto c = p_->cost(cell.stage, cell.microbatch);
            const bool is_free = has_input_pair(cell.stage);
            const auto priced = is_free ? c.backward_input : c.backward();
            all.add(cells_.count * priced.value(), cells_.count * std::min(priced.value(), of.of_column[j]));
            if (is_free) all.add(cells_.count * c.backward_weight.value(), 0.0);
        }
        return all.least_price(amount);
    }
    [[nodiscard]] bool has_input_pair(stage s) const {
        return std::any_of(p_->overlaps.begin(), p_->overlaps.end(), [&](const overlap& each) {
            return each.backward == s && each.kind == overlap_kind::backward_input;
        });
    }
    /// The longest total duration of forwards whose stashes fit together. Each stash counts as the least memory that
    /// any option leaves.
    [[nodiscard]] double most_forwards_in_memory() const {
        const auto limit = p_->memory_limit[rank_] + tolerance{}.at(p_->memory_scale());
        if (limit.is_unlimited()) return forwards_;
        fractional_knapsack all;
        for (const auto& cell : cells_.forwards) {
            auto held = memory_size::unlimited();
            for (const auto& option : p_->storage[cell.stage])
                held = std::min(held, option.left_on_device());
            const bool is_held = has_gradient(cell.stage);
            const auto factor = p_->microbatches.factors(cell.stage, cell.microbatch).memory;
            all.add(cells_.count * p_->cost(cell.stage, cell.microbatch).forward.value(),
                    is_held ? cells_.count * factor * held.value() : 0.0);
        }
        return all.most_amount(limit.value());
    }
    /// The bound on the makespan without pairs: all forwards end before any backward starts.
    [[nodiscard]] double one_after_the_other() const {
        const double load = p_->load(rank_).value();
        return std::max(first_backward_.value(), first_forward_.value() + forwards_) + load - forwards_ +
               after_backward_.value();
    }

    /// The operations of the rank as jobs for one machine. Each job is shorter than its operation by the operation's
    /// price. A W starts after its I.
    [[nodiscard]] std::vector<machine_job> jobs(const assignment_prices& of) const {
        std::vector<machine_job> all;
        for_each_alike(cells_.forwards, [&](std::size_t i, stage s, microbatch m) {
            const auto f = forward(s, m);
            all.push_back({head(f), length(f) - duration{of.of_row[i]}, tail(f)});
        });
        for_each_alike(cells_.backwards, [&](std::size_t j, stage s, microbatch m) {
            const auto b = gradient(s, m);
            const auto of_gradient = std::min(duration{of.of_column[j]}, length(b));
            all.push_back({head(b), length(b) - of_gradient, tail(b)});
            if (b.kind == operation_kind::backward_input && p_->costs[s].gradients == gradient_kind::full)
                all.push_back({head(b) + length(b),
                               p_->cost(s, m).backward_weight - (duration{of.of_column[j]} - of_gradient),
                               {}});
        });
        return all;
    }
    /// Calls `visit(i, stage, microbatch)` for each microbatch that cell i represents.
    template <class Visit> void for_each_alike(const std::vector<pairable_cells::cell>& cells, Visit visit) const {
        for (std::size_t i = 0; i < cells.size(); ++i) {
            if (!p_->microbatches.are_equal()) {
                visit(i, cells[i].stage, cells[i].microbatch);
                continue;
            }
            for (const microbatch m : p_->graph.all_microbatches())
                visit(i, cells[i].stage, m);
        }
    }

    const problem* p_;
    const chain_maker* chains_;
    const chain_paths* paths_;
    rank rank_;
    pairable_cells cells_;
    std::vector<assignment_prices> prices_;
    // The earliest start of any forward or backward (`first_…`), and the least time after its end (`after_…`).
    duration first_forward_ = duration::unlimited();
    duration first_backward_ = duration::unlimited();
    duration after_forward_ = duration::unlimited();
    duration after_backward_ = duration::unlimited();
    /// total duration of all forwards
    double forwards_ = 0.0;
};

} // namespace optpipe::detail
