#pragma once

#include "optpipe/core/stop_check.hpp"
#include "optpipe/milp/lp/simplex.hpp"
#include "optpipe/planner/bounds/memory_packing.hpp"
#include "optpipe/planner/bounds/storage_activities.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <initializer_list>
#include <limits>
#include <numeric>
#include <utility>
#include <vector>

namespace optpipe::detail {

/// Which copies exclude each other, on one rank and on one link.
struct copy_rules {
    /// A rank runs one copy at a time, out or in.
    bool one_at_a_time = false;
    /// A link carries one copy at a time, out or in.
    bool half_duplex = false;
};

/// A linear program for one rank, or for several ranks that share a link. The program decides which options the
/// microbatches use, and how long the rank is in each state. The optimum of the program is at most the objective of any
/// valid schedule.
///
/// The program minimizes T, the length of the rank's window. For each stage and option, x ≥ 0 is the share of
/// microbatches that use the option. A share stands for an integral number of microbatches. Each state has a variable:
/// the time that the rank spends in the state. A state has at most one running operation, and at most one copy (or one
/// per direction). The waiting stashes of a state fit in memory together. Multisets of waiting stashes are like the
/// patterns that fit a roll in Gilmore and Gomory's cutting stock problem. The window is divided where an activity
/// becomes possible or impossible (`time_windows`). All parts except the middle one have fixed lengths.
///
/// *Operations.* Each operation of an option runs long enough for the option's share of the microbatches.
///
/// *Stashes.* At least `wait` passes from the end of F to the start of I. Until I starts, the stash takes memory. A
/// stash takes its full size while it is kept, copied or recomputed. An offloaded stash takes the size of the part left
/// on the device. Host memory has a single effect: a stash that doesn't fit in host memory isn't offloaded.
///
/// *Instants.* At an instant t between two parts of the window, the stashes on the device fit in memory. Operations may
/// be partly done. Let F, I, W, C, O and R be the times of forwards, input gradients, weight gradients, recomputations,
/// offloads and reloads before t. Let f, i, w, c, o and r be the durations of a single operation of each kind. At least
/// F/f − I/i stashes wait for a gradient. At least F/f − W/w stashes exist. At least C/c − I/i stashes have been
/// recomputed. At most O/o − R/r stashes are offloaded. For the times after t, the same inequalities hold with opposite
/// signs, because each operation runs for all microbatches. The instants limit the forwards before the first gradient
/// and the weight gradients after the last gradient.
///
/// *Links.* Ranks that share a link have one T, and their windows are divided at the same times. A link carries one
/// copy at a time in each direction. In each part of the window, the copies in one direction take at most the part's
/// length. On a half-duplex link, the copies of both directions together take at most the part's length.
///
/// *Bound.* States are columns, priced by a knapsack problem over the memory. Let λ be multipliers of the rows (λ ≥ 0
/// for inequalities). Let ν ≥ 0 be the price of a copy on the link in each part. Any λ and ν give the Lagrangian bound
/// (least cost of all microbatches) − Σ_parts length · (Σ_ranks most valuable state + ν) − Σ_instants (most valuable
/// stashes). The multipliers are scaled so that (Σ_ranks most valuable state + ν) ≤ 1 in the middle part. The length of
/// the middle part grows with T. The simplex method only proposes λ and ν. The bound is computed by the formula.
class storage_mix_program {
public:
    storage_mix_program(const group_needs& needs, std::size_t count, double known, const copy_rules& rules)
        : needs_{needs}, count_{static_cast<double>(count)}, known_{known}, rules_{rules}, master_{first_program()} {}

    /// A lower bound on the objective, at least `known`. Branch and bound makes the numbers of microbatches integral,
    /// with at most a tenth of `work` in addition.
    double solve(double work, stop_check stop) {
        const auto later = [](const node& a, const node& b) { return a.bound > b.bound; };
        std::vector<node> open;
        const auto add = [&](node child, double most_work) {
            at_ = std::move(child);
            solve_node(most_work, stop);
            open.push_back(at_);
            std::push_heap(open.begin(), open.end(), later);
        };
        add(root(), work);
        if (open.front().bound <= known_) return known_; // this program can't raise the known bound
        constexpr double part_for_tree = 0.1;
        const double tree_work = done_ + part_for_tree * work;
        for (;;) {
            std::pop_heap(open.begin(), open.end(), later);
            const node least = std::move(open.back());
            open.pop_back();
            const auto branch = most_fractional(least.shares);
            if (branch == least.shares.size() || done_ >= tree_work || stop()) return least.bound;
            auto fewer = least;
            fewer.high[branch] = std::floor(least.shares[branch]);
            add(std::move(fewer), tree_work);
            auto more = least;
            more.low[branch] = std::floor(least.shares[branch]) + 1.0;
            add(std::move(more), tree_work);
        }
    }

private:
    using column = milp::new_column;

    /// A node of branch and bound. `low` and `high` limit the number of microbatches that use each option. `shares` has
    /// the numbers of microbatches at the optimum of the relaxation.
    struct node {
        double bound = 0.0;
        std::vector<double> low{};
        std::vector<double> high{};
        std::vector<double> shares{};
    };
    [[nodiscard]] node root() const {
        node all{known_, std::vector(needs_.options.size(), 0.0), {}, {}};
        for (const auto& n : needs_.options)
            all.high.push_back(fits(n) ? count_ : 0.0);
        return all;
    }
    [[nodiscard]] bool fits(const option_needs& n) const {
        if (n.wait > 0.0 && waiting_cells(n) > cells_of(n)) return false;
        if (!n.fits_host) return false;
        for (std::size_t k = 0; k < activities; ++k)
            if (n.length[k] > 0.0 && n.cells[k] > cells_of(n)) return false;
        return true;
    }
    [[nodiscard]] std::size_t cells_of(const option_needs& n) const { return needs_.cells[n.rank]; }
    /// The option with the most fractional share. Returns the number of options if all shares are integral.
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
    /// Raises the bound of the current node, and sets its shares.
    void solve_node(double most_work, stop_check stop) {
        const auto is_late = [&] { return done_ >= most_work || stop(); };
        for (std::size_t i = 0; i < needs_.options.size(); ++i)
            master_.set_column_bounds(share_columns_[i], at_.low[i] / count_, at_.high[i] / count_);
        at_.shares = at_.low; // integral shares: the search doesn't branch on an unsolved node
        for (std::size_t n = 0; n < most_rounds && !is_late(); ++n) {
            const auto status = solve_master(most_work, is_late);
            if (status != milp::lp_status::optimal && status != milp::lp_status::iteration_limit) return;
            at_.bound = std::max(at_.bound, known_ * evaluate({master_.duals().begin(), master_.duals().end()}));
            for (std::size_t i = 0; i < needs_.options.size(); ++i)
                at_.shares[i] = count_ * master_.primal()[share_columns_[i]];
            constexpr double close = 1e-8;
            if (found_.empty() || known_ * master_.objective() <= at_.bound * (1.0 + close)) break;
            master_.add_columns(found_);
        }
    }
    template <class Late> milp::lp_status solve_master(double most_work, Late is_late) {
        constexpr double most_between_polls = 1000.0;
        const auto& a = master_.program();
        const auto each = static_cast<double>(static_cast<std::size_t>(a.matrix.nonZeros()) + a.rows() + a.columns());
        for (;;) {
            const auto before = master_.iterations();
            const double most = std::clamp((most_work - done_) / each, 1.0, most_between_polls);
            const auto status = master_.solve({.iterations = static_cast<std::size_t>(most)});
            done_ += each * static_cast<double>(master_.iterations() - before);
            if (status != milp::lp_status::iteration_limit || is_late()) return status;
        }
    }
    static constexpr std::size_t most_rounds = 500;
    /// The least reduced cost of a new column, in units of `known`.
    static constexpr double optimality = 1e-7;
    /// A factor that covers the rounding of sums of values.
    static constexpr double rounding = 1.0 + 1e-10;
    /// Parts of the window shorter than `time_share` · `known` come from rounding.
    static constexpr double time_share = 1e-9;
    static constexpr std::size_t no_row = static_cast<std::size_t>(-1);
    static constexpr double infinite = std::numeric_limits<double>::infinity();
    enum instant_row : std::size_t { stashes, with_pending, restored, offloaded, instant_rows };

    /// A part of the window. In the head, `from` and `to` are counted from the window's start. In the tail, `from` and
    /// `to` are counted from the window's end. The middle part lies between head and tail. `rows` has one row for each
    /// rank. `link` has one row for each direction, or twice the same row.
    struct interval {
        int side = 0; // 1: head, -1: tail, 0: middle
        double from = 0.0;
        double to = 0.0;
        std::vector<std::size_t> rows{};
        std::array<std::size_t, 2> link{no_row, no_row};
    };
    /// A time in a rank's window. `at` is counted from the window's start if `side` is 1, and from the window's end if
    /// `side` is −1.
    struct instant {
        std::size_t rank = 0;
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
            for (std::size_t r = 0; r < needs_.cells.size(); ++r)
                if (counts_stashes(r, side, to)) instants_.push_back({r, side, to});
            fixed_ += to - from;
            from = to;
        }
    }

    /// Whether stashes are counted at the instant `at` of rank `r` (see `instant`). Near the window's start, stashes
    /// are counted when a stage's gradients can first start. Near the window's end, stashes are counted when a stage's
    /// forwards or gradients must have ended.
    [[nodiscard]] bool counts_stashes(std::size_t r, int side, double at) const {
        const auto near = [&](double x) { return std::abs(x - at) <= time_share * known_; };
        return std::any_of(needs_.options.begin(), needs_.options.end(), [&](const option_needs& n) {
            if (n.rank != r) return false;
            if (side > 0) return near(n.window[run_gradient].head);
            return near(n.window[run_gradient].tail) || near(n.window[run_forward].tail);
        });
    }
    /// Makes the program with all rows, and with enough columns to be feasible.
    milp::simplex first_program() {
        split_window();
        milp::linear_program rows;
        number_rows(rows);
        rows.matrix.resize(static_cast<Eigen::Index>(rows.rows()), 0);
        milp::simplex master{std::move(rows)};
        auto columns = share_columns();
        add_serial_columns(columns);
        master.add_columns(columns);
        return master;
    }
    void number_rows(milp::linear_program& to) {
        const auto row = [&](double lower, double upper) {
            to.row_lower.push_back(lower);
            to.row_upper.push_back(upper);
            return to.rows() - 1;
        };
        for (std::size_t i = 0; i < needs_.stages.size(); ++i)
            choice_rows_.push_back(row(1.0, 1.0));
        for (auto& j : intervals_) {
            const double most = j.side == 0 ? -fixed_ / known_ : (j.to - j.from) / known_;
            for (std::size_t r = 0; r < needs_.cells.size(); ++r)
                j.rows.push_back(row(-infinite, most));
            if (needs_.cells.size() == 1) continue; // a single rank's states already respect the link
            j.link[0] = row(-infinite, most);
            j.link[1] = rules_.half_duplex ? j.link[0] : row(-infinite, most);
        }
        run_rows_.resize(needs_.options.size());
        for (std::size_t i = 0; i < needs_.options.size(); ++i) {
            const auto& n = needs_.options[i];
            for (std::size_t k = 0; k < activities; ++k)
                run_rows_[i][k] = n.length[k] > 0.0 ? row(0.0, 0.0) : no_row;
            wait_rows_.push_back(n.wait > 0.0 ? row(0.0, infinite) : no_row);
        }
        for (auto& t : instants_) {
            t.row = row(-infinite, 1.0);
            for (const auto& n : needs_.options) {
                auto& rows = t.rows.emplace_back();
                rows.fill(no_row);
                if (n.rank != t.rank) continue;
                rows[stashes] = row(0.0, infinite);
                if (n.length[run_weight] > 0.0) rows[with_pending] = row(0.0, infinite);
                if (n.length[run_recompute] > 0.0) rows[restored] = row(0.0, infinite);
                if (n.length[run_offload] > 0.0 && n.length[run_reload] > 0.0) rows[offloaded] = row(0.0, infinite);
            }
        }
    }
    static void put(column& c, std::size_t row, double value) {
        if (row != no_row && value != 0.0) c.terms.emplace_back(row, value);
    }
    [[nodiscard]] std::size_t place_of(std::size_t stage) const {
        return static_cast<std::size_t>(std::find(needs_.stages.begin(), needs_.stages.end(), stage) -
                                        needs_.stages.begin());
    }
    [[nodiscard]] static std::size_t waiting_cells(const option_needs& n) { return n.offloads ? n.left : n.held; }

    /// The column of T, and one column per option for its share.
    [[nodiscard]] std::vector<column> share_columns() {
        std::vector<column> columns{{1.0, {}}};
        const auto& middle = intervals_.back();
        for (const auto row : middle.rows)
            put(columns[0], row, -1.0);
        put(columns[0], middle.link[0], -1.0);
        if (!rules_.half_duplex) put(columns[0], middle.link[1], -1.0);
        for (std::size_t i = 0; i < needs_.options.size(); ++i) {
            column x{0.0, {}};
            const auto& n = needs_.options[i];
            put(x, choice_rows_[place_of(n.stage)], 1.0);
            for (std::size_t k = 0; k < activities; ++k)
                put(x, run_rows_[i][k], -count_ * n.length[k] / known_);
            put(x, wait_rows_[i], -count_ * n.wait / known_);
            share_columns_.push_back(columns.size());
            columns.push_back(std::move(x));
        }
        return columns;
    }
    /// Adds columns for a serial schedule in the middle of the window. With these columns, the program always has a
    /// solution.
    void add_serial_columns(std::vector<column>& columns) const {
        const auto& middle = intervals_.back();
        for (std::size_t i = 0; i < needs_.options.size(); ++i) {
            const auto& n = needs_.options[i];
            if (!fits(n)) continue;
            for (std::size_t k = 0; k < activities; ++k) {
                if (run_rows_[i][k] == no_row) continue;
                column y{0.0, {{middle.rows[n.rank], 1.0}}};
                for_each_effect(i, k, middle, [&](std::size_t row, double amount) { put(y, row, amount); });
                columns.push_back(std::move(y));
            }
            if (wait_rows_[i] == no_row) continue;
            const auto cells = waiting_cells(n);
            const double times = cells > 0 ? static_cast<double>(cells_of(n) / cells) : count_;
            columns.push_back({0.0, {{middle.rows[n.rank], 1.0}, {wait_rows_[i], times}}});
        }
    }

    /// Visits the effect of a running activity on each row. Activity `k` of option `i` runs for one unit of time (in
    /// units of `known`) in interval `j`.
    template <class Put> void for_each_effect(std::size_t i, std::size_t k, const interval& j, Put visit) const {
        const auto& n = needs_.options[i];
        visit(run_rows_[i][k], 1.0);
        if (is_copy(k) || k == run_recompute) visit(wait_rows_[i], 1.0);
        if (is_copy(k)) visit(j.link[k == run_reload ? 1 : 0], 1.0);
        const double operations = known_ / (n.length[k] * count_);
        for (const auto& t : instants_) {
            if (t.rank != n.rank || t.side != j.side || j.to > t.at) continue;
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
    /// The Lagrangian bound at the given multipliers, in units of `known`. The call also finds columns that would raise
    /// the bound.
    double evaluate(std::vector<double> multipliers) {
        found_.clear();
        for (const auto cells : needs_.cells)
            done_ += static_cast<double>(needs_.options.size() * (intervals_.size() + instants_.size()) *
                                         (cells + activities * instants_.size()));
        keep_signs(multipliers);
        double total = 0.0;
        double middle = 0.0;
        for (const auto& j : intervals_) {
            double value = price_of_link(j, multipliers);
            for (std::size_t r = 0; r < needs_.cells.size(); ++r)
                value += best_state(j, r, multipliers);
            if (j.side == 0)
                middle = value;
            else
                total -= value * (j.to - j.from) / known_;
        }
        for (const auto& t : instants_)
            total -= best_moment(t, multipliers);
        total += least_cost(multipliers);
        const double scale = middle > 1.0 ? 1.0 / middle : 1.0;
        total *= scale;
        middle *= scale;
        return total + middle * fixed_ / known_ + (1.0 - middle);
    }
    /// The price of the link per unit of time in interval j, summed over its directions.
    [[nodiscard]] double price_of_link(const interval& j, const std::vector<double>& multipliers) const {
        if (j.link[0] == no_row) return 0.0;
        return -multipliers[j.link[0]] - (rules_.half_duplex ? 0.0 : multipliers[j.link[1]]);
    }
    /// Corrects the signs of the multipliers. Multipliers of equations (the rows for running times) may have any sign.
    /// Positive multipliers of links become 0. Negative multipliers of inequalities that aren't about links become 0.
    void keep_signs(std::vector<double>& multipliers) const {
        const auto raise = [&](std::size_t row) {
            if (row != no_row) multipliers[row] = std::max(0.0, multipliers[row]);
        };
        std::for_each(wait_rows_.begin(), wait_rows_.end(), raise);
        for (const auto& t : instants_)
            for (const auto& rows : t.rows)
                std::for_each(rows.begin(), rows.end(), raise);
        for (const auto& j : intervals_)
            for (const auto row : j.link)
                if (row != no_row) multipliers[row] = std::min(0.0, multipliers[row]);
    }
    [[nodiscard]] double cost_of(std::size_t option, const std::vector<double>& multipliers) const {
        const auto& n = needs_.options[option];
        double cost = 0.0;
        for (std::size_t k = 0; k < activities; ++k)
            if (const auto row = run_rows_[option][k]; row != no_row) cost += multipliers[row] * n.length[k];
        if (wait_rows_[option] != no_row) cost += multipliers[wait_rows_[option]] * n.wait;
        return count_ / known_ * cost;
    }
    /// The least cost of all microbatches. The microbatches of a stage use the stage's cheapest options first, within
    /// the node's limits.
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
        return total / count_;
    }

    /// The largest value of a state of rank r per unit of time in interval j.
    double best_state(const interval& j, std::size_t r, const std::vector<double>& multipliers) {
        const auto cells = needs_.cells[r];
        auto offered = nothing_offered(cells);
        for (std::size_t i = 0; i < needs_.options.size(); ++i) {
            const auto& n = needs_.options[i];
            if (n.rank != r || wait_rows_[i] == no_row || !allowed(n.waiting, j)) continue;
            offer(offered, i, i, waiting_cells(n), multipliers[wait_rows_[i]]);
        }
        packing_.fill(offered.items, cells);
        const auto running = best_running(choices_in(j, r, multipliers), cells);
        const double best = packing_.value(cells - running.cells) + running.value + value_of_free(offered);
        if (best > -multipliers[j.rows[r]] + optimality) add_state(j, r, running, offered.free);
        return best * rounding;
    }
    /// The most valuable of a stage's stashes that take no memory.
    struct free_stash {
        std::size_t id = no_row;
        double value = 0.0;
    };
    struct offered_stashes {
        std::size_t most_cells = 0;
        std::vector<memory_packing::item> items{};
        std::vector<free_stash> free{};
    };
    [[nodiscard]] offered_stashes nothing_offered(std::size_t most_cells) const {
        return {most_cells, {}, std::vector<free_stash>(needs_.stages.size())};
    }
    /// Offers stashes of option i to the packing. `id` names the offer. Stashes that take memory are packed. For each
    /// stage, only the most valuable stash without memory is kept. The kept stash counts for all microbatches.
    void offer(offered_stashes& to, std::size_t i, std::size_t id, std::size_t cells, double value) const {
        if (value <= 0.0 || cells > to.most_cells) return;
        if (cells > 0) {
            to.items.push_back({id, cells, value});
            return;
        }
        auto& f = to.free[place_of(needs_.options[i].stage)];
        if (value > f.value) f = {id, value};
    }
    [[nodiscard]] double value_of_free(const offered_stashes& offered) const {
        return std::accumulate(offered.free.begin(), offered.free.end(), 0.0,
                               [this](double sum, const free_stash& f) { return sum + count_ * f.value; });
    }

    /// The activities that may run: operations, offloads and reloads. The first entry of each list stands for no
    /// activity.
    using choice_lists = std::array<std::vector<choice>, 3>;
    [[nodiscard]] choice_lists choices_in(const interval& j, std::size_t r,
                                          const std::vector<double>& multipliers) const {
        choice_lists lists{std::vector<choice>(1), std::vector<choice>(1), std::vector<choice>(1)};
        for (std::size_t i = 0; i < needs_.options.size(); ++i)
            for (std::size_t k = 0; k < activities; ++k) {
                const auto& n = needs_.options[i];
                if (n.rank != r || run_rows_[i][k] == no_row || !allowed(n.window[k], j)) continue;
                if (n.cells[k] > cells_of(n)) continue;
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
    /// The best choices, one from each list. Waiting stashes are packed in the memory that the choices leave free.
    [[nodiscard]] running_state best_running(const choice_lists& lists, std::size_t most_cells) const {
        running_state best;
        double most = packing_.value(most_cells);
        for (const auto& a : lists[0])
            for (const auto& b : lists[1])
                for (const auto& c : lists[2]) {
                    const auto cells = a.cells + b.cells + c.cells;
                    if (cells > most_cells || (rules_.one_at_a_time && b.option != no_row && c.option != no_row))
                        continue;
                    const double value = a.value + b.value + c.value;
                    if (value + packing_.value(most_cells - cells) <= most) continue;
                    most = value + packing_.value(most_cells - cells);
                    best = {{a, b, c}, cells, value};
                }
        return best;
    }
    void add_state(const interval& j, std::size_t r, const running_state& running,
                   const std::vector<free_stash>& free) {
        column y{0.0, {{j.rows[r], 1.0}}};
        for (const auto& a : running.chosen)
            if (a.option != no_row)
                for_each_effect(a.option, a.kind, j, [&](std::size_t row, double amount) { put(y, row, amount); });
        packing_.for_each_packed(needs_.cells[r] - running.cells, [&](std::size_t i) { put(y, wait_rows_[i], 1.0); });
        for (const auto& f : free)
            if (f.id != no_row) put(y, wait_rows_[f.id], count_);
        found_.push_back(std::move(y));
    }

    /// The largest value of the stashes on the device at one moment.
    double best_moment(const instant& t, const std::vector<double>& multipliers) {
        const auto most_cells = needs_.cells[t.rank];
        auto offered = nothing_offered(most_cells);
        std::vector<column> effects;
        const double one = 1.0 / count_;
        for (std::size_t i = 0; i < needs_.options.size(); ++i) {
            const auto& n = needs_.options[i];
            if (n.rank != t.rank) continue;
            const auto offer_as = [&](std::size_t cells, std::initializer_list<std::pair<instant_row, double>> parts) {
                column effect{0.0, {}};
                double value = 0.0;
                for (const auto& [row, amount] : parts) {
                    put(effect, t.rows[i][row], amount);
                    if (t.rows[i][row] != no_row) value += amount * multipliers[t.rows[i][row]];
                }
                effects.push_back(std::move(effect));
                offer(offered, i, effects.size() - 1, cells, value);
            };
            offer_as(n.held, {{stashes, one}, {with_pending, one}});
            if (n.length[run_recompute] > 0.0)
                offer_as(n.restored, {{stashes, one}, {with_pending, one}, {restored, one}});
            if (n.offloads) offer_as(n.left, {{stashes, one}, {with_pending, one}, {offloaded, -one}});
            if (n.length[run_weight] > 0.0) offer_as(n.pending, {{with_pending, one}});
        }
        packing_.fill(offered.items, most_cells);
        const double best = packing_.value(most_cells) + value_of_free(offered);
        if (best > -multipliers[t.row] + optimality) {
            column z{0.0, {{t.row, 1.0}}};
            const auto take = [&](std::size_t id, double times) {
                for (const auto& [row, amount] : effects[id].terms)
                    put(z, row, times * amount);
            };
            packing_.for_each_packed(most_cells, [&](std::size_t id) { take(id, 1.0); });
            for (const auto& f : offered.free)
                if (f.id != no_row) take(f.id, count_);
            found_.push_back(std::move(z));
        }
        return best * rounding;
    }

    group_needs needs_;
    double count_;
    double known_;
    copy_rules rules_;
    double fixed_ = 0.0;
    std::vector<interval> intervals_{};
    std::vector<instant> instants_{};
    std::vector<std::size_t> choice_rows_{};
    std::vector<std::array<std::size_t, activities>> run_rows_{};
    std::vector<std::size_t> wait_rows_{};
    memory_packing packing_{};
    node at_{};
    std::vector<std::size_t> share_columns_{};
    std::vector<column> found_{};
    double done_ = 0.0;
    milp::simplex master_; // initialized last: its rows come from the other members
};

} // namespace optpipe::detail
