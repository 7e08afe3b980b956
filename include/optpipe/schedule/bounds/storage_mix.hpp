#pragma once

#include "optpipe/core/compiled.hpp"
#include "optpipe/core/quantity.hpp"
#include "optpipe/core/stop_check.hpp"
#include "optpipe/pipeline/problem.hpp"

#include <concepts>

namespace optpipe {

/// The largest objective that the storage mix of a single rank refutes, at least `known`. Takes milliseconds to a
/// second, limited by `work`, the approximate number of floating-point operations per rank. For problems that
/// `validate` accepts.
///
/// `stop` is polled; the result is then the largest objective refuted until then. Deterministic if `stop` never returns
/// true.
[[nodiscard]] duration storage_mix_bound(const problem& p, duration known, stop_check stop = {}, double work = 3e8);
/// `storage_mix_bound` for a problem with static extents.
template <pipeline_graph Graph>
requires(!std::same_as<Graph, any_graph>) [[nodiscard]] duration
    storage_mix_bound(const basic_problem<Graph>& p, duration known, stop_check stop = {}, double work = 3e8) {
    return storage_mix_bound(to_problem(p), known, stop, work);
}

} // namespace optpipe

#if OPTPIPE_DEFINES(schedule)
#include "optpipe/schedule/bounds/column_program.hpp"
#include "optpipe/schedule/bounds/memory_packing.hpp"
#include "optpipe/schedule/bounds/storage_activities.hpp"
#include "optpipe/schedule/bounds/storage_relaxation.hpp"
#include "optpipe/schedule/bounds/time_windows.hpp"
#include "optpipe/schedule/rules/transfer_resources.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <initializer_list>
#include <limits>
#include <utility>
#include <vector>

namespace optpipe {
namespace detail {

/// A linear program over the options that the microbatches of one rank use, and over the states of the rank. Its
/// optimum is at most the objective of any valid schedule.
///
/// It minimizes T over x ≥ 0, the shares of each stage's microbatches that use each option (integral numbers of
/// microbatches), and over the time that the rank spends in each state. A state is an operation that runs or none, a
/// copy or none (or one in each direction), and a multiset of waiting stashes that fit into the memory together (as the
/// patterns in Gilmore and Gomory's cutting stock are multisets that fit a roll). The window of length T is divided
/// where something becomes possible or impossible (`time_windows`); the parts at both ends have fixed lengths.
///
/// - Every operation runs as long as its option's share takes.
/// - From the end of F to the start of I, at least `wait` passes. Meanwhile the stash takes memory: all of it while it
///   is copied or recomputed, or if it stays; the part left on the device while it is offloaded.
/// - At an instant t between two parts, the stashes on the device fit the memory together, too. Operations may be
///   partly done. Let F, I, W, C, O, R be the times run before t, and f, i, w, c, o, r the durations. Then at least F/f
///   − I/i stashes wait for a gradient, F/f − W/w are there, C/c − I/i have been recomputed, and at most O/o − R/r are
///   offloaded. Counted from the end, the same holds with opposite signs, because in total each is run for all
///   microbatches. So only few forwards can run before the first gradient, and few weight gradients after the last.
///
/// States are columns, priced by a knapsack over the memory. Any multipliers λ ≥ 0 of the rows give the bound (least
/// cost of all microbatches) − Σ_parts length · (most valuable state) − Σ_instants (most valuable stashes), scaled such
/// that the middle part, which grows with T, has no state of value above 1 (Lagrange). The simplex only proposes λ.
class storage_mix_program {
public:
    storage_mix_program(const rank_needs& needs, std::size_t count, double known, bool one_copy_at_a_time)
        : needs_{needs}, count_{static_cast<double>(count)}, known_{known}, one_copy_{one_copy_at_a_time} {
        split_window();
        number_rows();
    }

    /// A lower bound on the objective, at least `known`, with about `work` floating-point operations. Shares are
    /// integral numbers of microbatches: a part of the work goes to branch and bound, the least bound first.
    double solve(double work, stop_check stop) {
        const auto later = [](const node& a, const node& b) { return a.bound > b.bound; };
        const auto options = needs_.options.size();
        std::vector<node> open;
        const auto add = [&](node child) {
            at_ = std::move(child);
            at_.bound = std::max(at_.bound, solve_node(work, stop));
            open.push_back(at_);
            std::push_heap(open.begin(), open.end(), later);
        };
        add({known_, std::vector<double>(options, 0.0), std::vector<double>(options, count_), {}});
        if (open.front().bound <= known_) return known_; // other ranks bound the step
        constexpr double part_for_tree = 0.1;
        const double tree_work = done_ + part_for_tree * work;
        for (;;) {
            std::pop_heap(open.begin(), open.end(), later);
            const node least = std::move(open.back());
            open.pop_back();
            const auto branch = most_fractional(least.shares);
            if (branch == options || done_ >= tree_work || stop()) return least.bound;
            auto fewer = least;
            fewer.high[branch] = std::floor(least.shares[branch]);
            add(std::move(fewer));
            auto more = least;
            more.low[branch] = std::floor(least.shares[branch]) + 1.0;
            add(std::move(more));
        }
    }

private:
    /// Limits on the number of microbatches that use each option, and their numbers at the optimum of the relaxation.
    struct node {
        double bound = 0.0;
        std::vector<double> low{};
        std::vector<double> high{};
        std::vector<double> shares{};
    };
    /// The option with the most fractional share; the number of options if all shares are integral.
    [[nodiscard]] static std::size_t most_fractional(const std::vector<double>& shares) {
        constexpr double integral = 1e-4;
        std::size_t branch = shares.size();
        double most = integral;
        for (std::size_t i = 0; i < shares.size(); ++i)
            if (const double part = std::abs(shares[i] - std::round(shares[i])); part > most) {
                most = part;
                branch = i;
            }
        return branch;
    }
    double solve_node(double work, stop_check stop) {
        auto sides = node_sides();
        if (sides.size() > most_rows) return at_.bound;
        column_program master{std::move(sides), artificial_cost};
        const auto rows = static_cast<double>(master.rows());
        const auto most_pivots = static_cast<std::size_t>(work / (rows * rows));
        add_first_columns(master);
        double best = at_.bound;
        for (std::size_t n = 0; n < most_rounds && master.pivots() < most_pivots && !stop(); ++n) {
            master.solve(std::min(most_pivots_per_round, most_pivots - master.pivots()));
            best = std::max(best, known_ * evaluate(master.multipliers(), master));
            constexpr double close = 1e-5;
            if (added_ == 0 || known_ * master.objective() <= best * (1.0 + close)) break;
        }
        done_ += rows * rows * static_cast<double>(master.pivots());
        at_.shares.clear();
        for (const auto column : share_columns_)
            at_.shares.push_back(count_ * master.value_of(column));
        return best;
    }
    /// The right-hand sides, with one more row for each limit on a share.
    std::vector<double> node_sides() {
        auto sides = sides_;
        limit_rows_.assign(needs_.options.size(), {no_row, no_row});
        for (std::size_t i = 0; i < needs_.options.size(); ++i) {
            const auto limit = [&](std::size_t which, double side) {
                limit_rows_[i][which] = sides.size();
                sides.push_back(side / count_);
            };
            if (at_.low[i] > 0.0) limit(0, at_.low[i]);
            if (at_.high[i] < count_) limit(1, at_.high[i]);
        }
        return sides;
    }
    static constexpr double artificial_cost = 100.0;
    static constexpr std::size_t most_pivots_per_round = 1000;
    static constexpr std::size_t most_rounds = 500;
    /// Largest number of rows. The matrix is dense: with more rows it would take more than 128 MB, and the usual work
    /// is 17 pivots at most.
    static constexpr std::size_t most_rows = 4096;
    /// The reduced cost, in units of `known`, from which a column is worth adding.
    static constexpr double optimality = 1e-7;
    /// Bounds the rounding of sums of values.
    static constexpr double rounding = 1.0 + 1e-10;
    /// Relative to a time: shorter windows are only rounding.
    static constexpr double time_share = 1e-9;
    static constexpr std::size_t no_row = static_cast<std::size_t>(-1);
    enum instant_row : std::size_t { stashes, with_pending, restored, offloaded, instant_rows };

    /// A part of the window, from `from` to `to` after its start, or before its end. The middle has the rest.
    struct interval {
        int side = 0; // 1: head, -1: tail, 0: middle
        double from = 0.0;
        double to = 0.0;
        std::size_t row = no_row;
    };
    /// A moment, `at` after the start of the window, or before its end.
    struct instant {
        int side = 1;
        double at = 0.0;
        std::size_t row = no_row;
        std::vector<std::array<std::size_t, instant_rows>> rows{};
    };

    void split_window() {
        std::vector<double> heads;
        std::vector<double> tails;
        for (const auto& n : needs_.options) {
            for (std::size_t k = 0; k < activities; ++k)
                if (n.length[k] > 0.0) {
                    heads.push_back(n.window[k].head);
                    tails.push_back(n.window[k].tail);
                }
            heads.push_back(n.waiting.head);
            tails.push_back(n.waiting.tail);
        }
        double most_head = *std::max_element(heads.begin(), heads.end());
        double most_tail = *std::max_element(tails.begin(), tails.end());
        if (most_head + most_tail > known_) {
            const double shrink = known_ / (most_head + most_tail);
            most_head *= shrink;
            most_tail *= shrink;
        }
        add_intervals(1, std::move(heads), most_head);
        add_intervals(-1, std::move(tails), most_tail);
        intervals_.push_back({});
    }
    void add_intervals(int side, std::vector<double> ends, double most) {
        std::sort(ends.begin(), ends.end());
        double from = 0.0;
        for (const double to : ends) {
            if (to > most || to - from <= time_share * known_) continue;
            intervals_.push_back({side, from, to});
            if (counts_stashes(side, to)) instants_.push_back({side, to});
            fixed_ += to - from;
            from = to;
        }
    }

    /// Whether `at` is an instant at which gradients begin, or forwards or gradients end.
    [[nodiscard]] bool counts_stashes(int side, double at) const {
        const auto near = [&](double x) { return std::abs(x - at) <= time_share * known_; };
        return std::any_of(needs_.options.begin(), needs_.options.end(), [&](const option_needs& n) {
            if (side > 0) return near(n.window[run_gradient].head);
            return near(n.window[run_gradient].tail) || near(n.window[run_forward].tail);
        });
    }
    std::size_t add_row(double side) {
        sides_.push_back(side);
        return sides_.size() - 1;
    }
    void number_rows() {
        for (std::size_t i = 0; i < needs_.stages.size(); ++i)
            choice_rows_.push_back(add_row(1.0));
        for (auto& j : intervals_)
            j.row = add_row(j.side == 0 ? -fixed_ / known_ : (j.to - j.from) / known_);
        run_rows_.resize(needs_.options.size());
        for (std::size_t i = 0; i < needs_.options.size(); ++i) {
            const auto& n = needs_.options[i];
            for (std::size_t k = 0; k < activities; ++k)
                run_rows_[i][k] = n.length[k] > 0.0 ? add_row(0.0) : no_row;
            wait_rows_.push_back(n.wait > 0.0 ? add_row(0.0) : no_row);
        }
        for (auto& t : instants_) {
            t.row = add_row(1.0);
            for (const auto& n : needs_.options) {
                std::array<std::size_t, instant_rows> rows{no_row, no_row, no_row, no_row};
                rows[stashes] = add_row(0.0);
                if (n.length[run_weight] > 0.0) rows[with_pending] = add_row(0.0);
                if (n.length[run_recompute] > 0.0) rows[restored] = add_row(0.0);
                if (n.length[run_offload] > 0.0 && n.length[run_reload] > 0.0) rows[offloaded] = add_row(0.0);
                t.rows.push_back(rows);
            }
        }
    }
    static void put(column_program::column& c, std::size_t row, double value) {
        if (row == no_row || value == 0.0) return;
        for (auto& e : c)
            if (e.row == row) {
                e.value += value;
                return;
            }
        c.push_back({row, value});
    }
    [[nodiscard]] std::size_t place_of(std::size_t stage) const {
        return static_cast<std::size_t>(std::find(needs_.stages.begin(), needs_.stages.end(), stage) -
                                        needs_.stages.begin());
    }

    void add_first_columns(column_program& master) {
        share_columns_.clear();
        for (const auto& j : intervals_)
            if (j.side == 0) master.add(1.0, {{j.row, -1.0}});
        for (const auto& j : intervals_)
            master.add(0.0, {{j.row, 1.0}});
        for (const auto& t : instants_)
            master.add(0.0, {{t.row, 1.0}});
        for (std::size_t i = 0; i < needs_.options.size(); ++i) {
            column_program::column x;
            const auto& n = needs_.options[i];
            put(x, choice_rows_[place_of(n.stage)], 1.0);
            for (std::size_t k = 0; k < activities; ++k)
                put(x, run_rows_[i][k], -count_ * n.length[k] / known_);
            put(x, wait_rows_[i], -count_ * n.wait / known_);
            for (const auto row : limit_rows_[i])
                put(x, row, 1.0);
            share_columns_.push_back(master.columns());
            master.add(0.0, std::move(x));
            if (limit_rows_[i][0] != no_row) master.add(0.0, {{limit_rows_[i][0], -1.0}});
            if (limit_rows_[i][1] != no_row) master.add(0.0, {{limit_rows_[i][1], 1.0}});
            if (wait_rows_[i] != no_row) master.add(0.0, {{wait_rows_[i], -1.0}});
            for (const auto& t : instants_)
                for (const auto row : t.rows[i])
                    if (row != no_row) master.add(0.0, {{row, -1.0}});
        }
        add_serial_columns(master);
    }
    /// Adds columns that run everything in the middle of the window, one after the other. They make the program
    /// feasible, whatever other columns are missing.
    void add_serial_columns(column_program& master) const {
        const auto& middle = intervals_.back();
        for (std::size_t i = 0; i < needs_.options.size(); ++i) {
            const auto& n = needs_.options[i];
            for (std::size_t k = 0; k < activities; ++k)
                if (run_rows_[i][k] != no_row && n.cells[k] <= needs_.cells) {
                    column_program::column y{{middle.row, 1.0}};
                    for_each_effect(i, k, middle, [&](std::size_t row, double amount) { put(y, row, amount); });
                    master.add(0.0, std::move(y));
                }
            const auto cells = n.offloads ? n.left : n.held;
            if (wait_rows_[i] == no_row || cells > needs_.cells) continue;
            const double times = cells > 0 ? static_cast<double>(needs_.cells / cells) : count_;
            master.add(0.0, {{middle.row, 1.0}, {wait_rows_[i], times}});
        }
    }

    /// The effect on the rows of one unit of time (in units of `known`) in which option i runs k in interval j.
    template <class Put> void for_each_effect(std::size_t i, std::size_t k, const interval& j, Put visit) const {
        const auto& n = needs_.options[i];
        visit(run_rows_[i][k], 1.0);
        if (is_copy(k) || k == run_recompute) visit(wait_rows_[i], 1.0);
        const double operations = known_ / (n.length[k] * count_);
        for (const auto& t : instants_) {
            if (t.side != j.side || j.to > t.at) continue;
            const double before = t.side * operations;
            const auto& rows = t.rows[i];
            switch (k) {
            case run_forward:
                visit(rows[stashes], -before);
                visit(rows[with_pending], -before);
                break;
            case run_gradient:
                visit(rows[stashes], before);
                visit(rows[restored], before);
                break;
            case run_weight: visit(rows[with_pending], before); break;
            case run_recompute: visit(rows[restored], -before); break;
            case run_offload: visit(rows[offloaded], before); break;
            case run_reload: visit(rows[offloaded], -before); break;
            default: break;
            }
        }
    }
    static bool allowed(const activity_window& w, const interval& j) {
        constexpr double exactness = 1e-12;
        return j.side == 0 || (j.side > 0 ? w.head : w.tail) < j.to * (1.0 - exactness);
    }

    struct choice {
        std::size_t option = no_row;
        std::size_t kind = 0;
        std::size_t cells = 0;
        double value = 0.0;
    };
    /// The Lagrangian bound at the given multipliers, in units of `known`. Adds columns that would improve them.
    double evaluate(std::vector<double> multipliers, column_program& master) {
        added_ = 0;
        keep_signs(multipliers);
        double total = 0.0;
        double middle = 0.0;
        for (const auto& j : intervals_) {
            const double value = best_state(j, multipliers, master);
            if (j.side == 0)
                middle = value;
            else
                total -= value * (j.to - j.from) / known_;
        }
        for (const auto& t : instants_)
            total -= best_moment(t, multipliers, master);
        total += least_cost(multipliers);
        const double scale = middle > 1.0 ? 1.0 / middle : 1.0;
        total *= scale;
        middle *= scale;
        return total + middle * fixed_ / known_ + (1.0 - middle);
    }
    /// Makes the multipliers nonnegative, except those of the runs, whose rows are equations.
    void keep_signs(std::vector<double>& multipliers) const {
        const auto raise = [&](std::size_t row) {
            if (row != no_row) multipliers[row] = std::max(0.0, multipliers[row]);
        };
        std::for_each(wait_rows_.begin(), wait_rows_.end(), raise);
        for (const auto& t : instants_)
            for (const auto& rows : t.rows)
                std::for_each(rows.begin(), rows.end(), raise);
    }
    [[nodiscard]] double cost_of(std::size_t option, const std::vector<double>& multipliers) const {
        const auto& n = needs_.options[option];
        double cost = 0.0;
        for (std::size_t k = 0; k < activities; ++k)
            if (const auto row = run_rows_[option][k]; row != no_row) cost += multipliers[row] * n.length[k];
        if (wait_rows_[option] != no_row) cost += multipliers[wait_rows_[option]] * n.wait;
        return count_ / known_ * cost;
    }
    /// The least cost of all microbatches of each stage, which use its cheapest options first, within the node's
    /// limits.
    [[nodiscard]] double least_cost(const std::vector<double>& multipliers) const {
        std::vector<std::pair<double, std::size_t>> costs;
        for (std::size_t i = 0; i < needs_.options.size(); ++i)
            costs.emplace_back(cost_of(i, multipliers), i);
        std::sort(costs.begin(), costs.end());
        std::vector<double> left(needs_.stages.size(), count_);
        double total = 0.0;
        for (const auto& [cost, i] : costs) {
            total += cost * at_.low[i];
            left[place_of(needs_.options[i].stage)] -= at_.low[i];
        }
        for (const auto& [cost, i] : costs) {
            auto& rest = left[place_of(needs_.options[i].stage)];
            const double some = std::max(0.0, std::min(rest, at_.high[i] - at_.low[i]));
            total += cost * some;
            rest -= some;
        }
        // Numbers are integral, so the comparison is exact: such shares don't exist.
        if (std::any_of(left.begin(), left.end(), [](double rest) { return std::abs(rest) > 0.5; }))
            return artificial_cost;
        return total / count_;
    }

    /// The largest value of one unit of time in interval j.
    double best_state(const interval& j, const std::vector<double>& multipliers, column_program& master) {
        std::vector<memory_packing::item> items;
        std::vector<choice> free(needs_.stages.size());
        for (std::size_t i = 0; i < needs_.options.size(); ++i) {
            const auto& n = needs_.options[i];
            if (wait_rows_[i] == no_row || !allowed(n.waiting, j)) continue;
            offer(items, free, i, n.offloads ? n.left : n.held, multipliers[wait_rows_[i]], n.stage);
        }
        packing_.fill(items, needs_.cells);
        const auto running = best_running(choices_in(j, multipliers));
        double best = packing_.value(needs_.cells - running.cells) + running.value;
        for (const auto& f : free)
            best += count_ * f.value;
        if (best > -multipliers[j.row] + optimality) add_state(master, j, running, free);
        return best * rounding;
    }
    /// Stashes without memory are there once per microbatch, with one option; the others are packed.
    void offer(std::vector<memory_packing::item>& items, std::vector<choice>& free, std::size_t id, std::size_t cells,
               double value, std::size_t stage) const {
        if (value <= 0.0 || cells > needs_.cells) return;
        if (cells > 0) {
            items.push_back({id, cells, value});
            return;
        }
        auto& f = free[place_of(stage)];
        if (value > f.value) f = {id, 0, 0, value};
    }

    /// The activities that may run: operations, offloads and reloads. The first entry of each list is none.
    using choice_lists = std::array<std::vector<choice>, 3>;
    [[nodiscard]] choice_lists choices_in(const interval& j, const std::vector<double>& multipliers) const {
        choice_lists lists{std::vector<choice>(1), std::vector<choice>(1), std::vector<choice>(1)};
        for (std::size_t i = 0; i < needs_.options.size(); ++i)
            for (std::size_t k = 0; k < activities; ++k) {
                const auto& n = needs_.options[i];
                if (run_rows_[i][k] == no_row || !allowed(n.window[k], j) || n.cells[k] > needs_.cells) continue;
                double value = 0.0;
                for_each_effect(i, k, j, [&](std::size_t row, double amount) {
                    if (row != no_row) value += amount * multipliers[row];
                });
                const std::size_t list = k == run_offload ? 1 : k == run_reload ? 2 : 0;
                if (value > 0.0) lists[list].push_back({i, k, n.cells[k], value});
            }
        return lists;
    }
    struct running_state {
        std::array<choice, 3> chosen{};
        std::size_t cells = 0;
        double value = 0.0;
    };
    /// The best choice from each list, together with the best packing of the waiting stashes.
    [[nodiscard]] running_state best_running(const choice_lists& lists) const {
        running_state best;
        double most = packing_.value(needs_.cells);
        for (const auto& a : lists[0])
            for (const auto& b : lists[1])
                for (const auto& c : lists[2]) {
                    const auto cells = a.cells + b.cells + c.cells;
                    if (cells > needs_.cells || (one_copy_ && b.option != no_row && c.option != no_row)) continue;
                    const double value = a.value + b.value + c.value;
                    if (value + packing_.value(needs_.cells - cells) <= most) continue;
                    most = value + packing_.value(needs_.cells - cells);
                    best = {{a, b, c}, cells, value};
                }
        return best;
    }
    void add_state(column_program& master, const interval& j, const running_state& running,
                   const std::vector<choice>& free) {
        column_program::column y{{j.row, 1.0}};
        for (const auto& a : running.chosen)
            if (a.option != no_row)
                for_each_effect(a.option, a.kind, j, [&](std::size_t row, double amount) { put(y, row, amount); });
        packing_.for_each_packed(needs_.cells - running.cells, [&](std::size_t i) { put(y, wait_rows_[i], 1.0); });
        for (const auto& f : free)
            if (f.option != no_row) put(y, wait_rows_[f.option], count_);
        master.add(0.0, std::move(y));
        ++added_;
    }

    /// The largest value of the stashes on the device at one moment.
    double best_moment(const instant& t, const std::vector<double>& multipliers, column_program& master) {
        std::vector<memory_packing::item> items;
        std::vector<choice> free(needs_.stages.size());
        std::vector<column_program::column> effects;
        const double one = 1.0 / count_;
        for (std::size_t i = 0; i < needs_.options.size(); ++i) {
            const auto& n = needs_.options[i];
            const auto offer_as = [&](std::size_t cells, std::initializer_list<std::pair<instant_row, double>> parts) {
                column_program::column effect;
                double value = 0.0;
                for (const auto& [row, amount] : parts) {
                    put(effect, t.rows[i][row], amount);
                    if (t.rows[i][row] != no_row) value += amount * multipliers[t.rows[i][row]];
                }
                effects.push_back(std::move(effect));
                offer(items, free, effects.size() - 1, cells, value, n.stage);
            };
            offer_as(n.held, {{stashes, one}, {with_pending, one}});
            if (n.length[run_recompute] > 0.0)
                offer_as(n.restored, {{stashes, one}, {with_pending, one}, {restored, one}});
            if (n.offloads) offer_as(n.left, {{stashes, one}, {with_pending, one}, {offloaded, -one}});
            if (n.length[run_weight] > 0.0) offer_as(n.pending, {{with_pending, one}});
        }
        packing_.fill(items, needs_.cells);
        double best = packing_.value(needs_.cells);
        for (const auto& f : free)
            best += count_ * f.value;
        if (best > -multipliers[t.row] + optimality) {
            column_program::column z{{t.row, 1.0}};
            const auto take = [&](std::size_t id, double times) {
                for (const auto& e : effects[id])
                    put(z, e.row, times * e.value);
            };
            packing_.for_each_packed(needs_.cells, [&](std::size_t id) { take(id, 1.0); });
            for (const auto& f : free)
                if (f.option != no_row) take(f.option, count_);
            master.add(0.0, std::move(z));
            ++added_;
        }
        return best * rounding;
    }

    rank_needs needs_;
    double count_;
    double known_;
    bool one_copy_;
    double fixed_ = 0.0;
    std::vector<interval> intervals_{};
    std::vector<instant> instants_{};
    std::vector<double> sides_{};
    std::vector<std::size_t> choice_rows_{};
    std::vector<std::array<std::size_t, activities>> run_rows_{};
    std::vector<std::size_t> wait_rows_{};
    memory_packing packing_{};
    node at_{};
    std::vector<std::array<std::size_t, 2>> limit_rows_{};
    std::vector<std::size_t> share_columns_{};
    double done_ = 0.0;
    std::size_t added_ = 0;
};

} // namespace detail

OPTPIPE_INLINE duration storage_mix_bound(const problem& p, duration known, stop_check stop, double work) {
    if (known.is_unlimited() || known <= duration{}) return known;
    const auto relaxed = without_storage(p, storage_relaxation::smallest_rest);
    const bool span = p.objective == objective_kind::span;
    const bool one_copy = shares_engine(p.transfer) || shares_channel(p.transfer);
    const auto step = time_windows<any_graph>::step(relaxed);
    // The drain of the last ranks bounds most problems, and a rank that refutes more shortens the work on the others.
    for (std::size_t i = p.graph.ranks(); i-- > 0 && !stop();) {
        const rank r{i};
        const auto needs = detail::needs_of(p, relaxed, r, span ? time_windows<any_graph>::of_rank(relaxed, r) : step);
        if (needs.options.empty()) continue;
        detail::storage_mix_program program{needs, p.graph.microbatches(), known.value(), one_copy};
        known = std::max(known, duration{program.solve(work, stop)});
    }
    return known;
}

} // namespace optpipe
#endif
