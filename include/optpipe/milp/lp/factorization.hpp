#pragma once

#include "optpipe/milp/bytes.hpp"
#include "optpipe/milp/lp/compressed.hpp"
#include "optpipe/milp/lp/growing_lists.hpp"
#include "optpipe/milp/lp/markowitz.hpp"
#include "optpipe/milp/lp/parameters.hpp"
#include "optpipe/milp/lp/triangular.hpp"
#include "optpipe/milp/lp/work_vector.hpp"

#include <cmath>
#include <cstddef>
#include <utility>
#include <vector>

namespace optpipe::milp::lp {

/// A variable left out of the basis, and the row whose slack replaces the variable.
struct replacement {
    int variable;
    int row;
};

/// A basis matrix as L · R · U, with the update of Forrest and Tomlin (1972). The basis consists of columns of [A | I].
/// Indices below the number of columns of A are columns of A; all others are slacks.
///
/// After `build`, `head[i]` is the variable that was eliminated with row i.
class factorization {
public:
    /// Factorizes the basis `head`. Variables that make the matrix singular are replaced in `head` by slacks, and
    /// returned.
    std::vector<replacement> build(const compressed& a, std::vector<int>& head, const pivot_rules& rules);

    /// Solves B x = b in place. `spike`, if given, receives the vector for `update`.
    void forward(work_vector& x, density_history& history, work_vector* spike = nullptr) {
        solve_triangular(lower_columns_, nullptr, lower_order_.begin(), lower_order_.end(), x, reach_, history.first());
        apply_updates(x);
        if (spike != nullptr) spike->copy(x);
        history.note_first(x.density());
        finish_forward(x, history.second(), true);
        history.note_second(x.density());
    }
    /// Like `forward`, solves B x = b in place. The result needn't list its nonzeros.
    void forward_values(work_vector& x, density_history& history) {
        solve_triangular(lower_columns_, nullptr, lower_order_.begin(), lower_order_.end(), x, reach_, history.first());
        apply_updates(x);
        history.note_first(x.density());
        const double expected = history.second();
        finish_forward(x, expected, false);
        // Unlisted results lower the expected density, so that a later solve lists its result.
        history.note_second(x.is_listed() ? x.density() : parameters.density_doubt * expected);
    }
    /// Solves B' x = b in place.
    void backward(work_vector& x, density_history& history, work_vector* partial = nullptr) {
        solve_triangular(upper_rows_, inverse_pivots_.data(), upper_order_.begin(), upper_order_.end(), x, reach_,
                         history.first());
        if (partial != nullptr) partial->copy(x);
        apply_updates_transposed(x);
        history.note_first(x.density());
        solve_triangular(lower_rows_, nullptr, lower_order_.rbegin(), lower_order_.rend(), x, reach_, history.second());
        history.note_second(x.density());
    }

    /// Replaces the variable at `row` of the head. `spike` comes from the forward solve with the new column. `partial`
    /// comes from the backward solve with the unit vector of `row`. `pivot` is the entry at `row` of the forward
    /// solve's result. Returns false if the new factors can't be trusted; then call `build`.
    [[nodiscard]] bool update(int row, const work_vector& spike, const work_vector& partial, double pivot);

    [[nodiscard]] int updates() const { return updates_; }
    [[nodiscard]] std::size_t bytes() const {
        return lower_columns_.bytes() + lower_rows_.bytes() + upper_columns_.bytes() + upper_rows_.bytes() +
               bytes_of(inverse_pivots_, lower_order_, upper_order_, upper_place_, update_row_, update_start_,
                        update_index_, update_value_);
    }
    /// Whether updates have enlarged the factors by more than a factor of `largest_growth`. Bloated factors cost more
    /// time than a new factorization.
    [[nodiscard]] bool is_bloated() const {
        return upper_columns_.footprint() + update_index_.size() >
               parameters.largest_growth * (footprint_ + inverse_pivots_.size());
    }

private:
    void finish_forward(work_vector& x, double expected, bool listed) {
        // Slacks that were pivots from the start have no entries above them.
        const auto end = upper_order_.rend() - static_cast<std::ptrdiff_t>(slacks_);
        solve_triangular(upper_columns_, inverse_pivots_.data(), upper_order_.rbegin(), end, x, reach_, expected,
                         listed);
    }
    void take(const pivot_sequence& sequence, const std::vector<int>& row_of_column);
    void apply_updates(work_vector& x) const {
        for (std::size_t e = 0; e < update_row_.size(); ++e) {
            double sum = 0.0;
            for (int k = update_start_[e]; k < update_start_[e + 1]; ++k)
                sum += update_value_[at(k)] * x[update_index_[at(k)]];
            if (sum != 0.0) x.add(update_row_[e], sum);
        }
    }
    void apply_updates_transposed(work_vector& x) const {
        for (std::size_t e = update_row_.size(); e-- > 0;) {
            const double v = x[update_row_[e]];
            if (v == 0.0) continue;
            for (int k = update_start_[e]; k < update_start_[e + 1]; ++k)
                x.add(update_index_[at(k)], v * update_value_[at(k)]);
        }
    }
    void remove_row_and_column(int row) {
        for (int k = 0; k < upper_rows_.size(row); ++k)
            upper_columns_.remove(upper_rows_.index(row)[k], row);
        for (int k = 0; k < upper_columns_.size(row); ++k)
            upper_rows_.remove(upper_columns_.index(row)[k], row);
        upper_rows_.clear(row);
        upper_columns_.clear(row);
    }

    growing_lists lower_columns_, lower_rows_, upper_columns_, upper_rows_;
    std::vector<double> inverse_pivots_;
    std::vector<int> lower_order_;
    /// Rows in the order of U; -1 marks a row that has moved to the end.
    std::vector<int> upper_order_;
    std::vector<int> upper_place_;
    std::vector<int> update_row_, update_start_, update_index_;
    std::vector<double> update_value_;
    int updates_ = 0;
    std::size_t slacks_ = 0;
    std::size_t footprint_ = 0;
    reach reach_;
};

inline bool factorization::update(int row, const work_vector& spike, const work_vector& partial, double pivot) {
    const double old_pivot = 1.0 / inverse_pivots_[at(row)];
    const double new_pivot = old_pivot * pivot;
    remove_row_and_column(row);

    double check = spike[row];
    const auto start = update_index_.size();
    for (const int i : partial.index) {
        if (i == row) continue;
        const double v = partial[i] * old_pivot;
        update_index_.push_back(i);
        update_value_.push_back(v);
        check += v * spike[i];
    }
    if (update_index_.size() > start) {
        update_row_.push_back(row);
        update_start_.push_back(static_cast<int>(update_index_.size()));
    }
    upper_columns_.reserve(row, static_cast<int>(spike.index.size()));
    for (const int i : spike.index) {
        if (i == row) continue;
        upper_columns_.append(row, i, spike[i]);
        upper_rows_.append(i, row, spike[i]);
    }
    inverse_pivots_[at(row)] = 1.0 / new_pivot;
    upper_order_[at(upper_place_[at(row)])] = -1;
    upper_place_[at(row)] = static_cast<int>(upper_order_.size());
    upper_order_.push_back(row);
    ++updates_;

    return std::abs(new_pivot) > parameters.least_updated_pivot &&
           std::abs(check - new_pivot) <= parameters.update_agreement * std::abs(new_pivot);
}

inline void factorization::take(const pivot_sequence& sequence, const std::vector<int>& row_of_column) {
    const auto m = sequence.rows.size();
    lower_columns_ = sequence.lower;
    for (auto* lists : {&lower_rows_, &upper_columns_, &upper_rows_})
        lists->reset(m);
    inverse_pivots_.assign(m, 1.0);
    std::vector<int> in_row(m, 0);
    std::vector<int> in_column(m, 0);
    for (const auto& e : sequence.upper) {
        if (row_of_column[at(e.column)] < 0) continue;
        ++in_row[at(e.row)];
        ++in_column[at(row_of_column[at(e.column)])];
    }
    lower_order_.clear();
    upper_order_ = sequence.rows;
    upper_place_.assign(m, 0);
    for (std::size_t k = 0; k < m; ++k) {
        const int r = sequence.rows[k];
        inverse_pivots_[at(r)] = 1.0 / sequence.values[k];
        upper_place_[at(r)] = static_cast<int>(k);
        upper_columns_.reserve(r, in_column[at(r)]);
        // Number of free places in each list for entries of later columns.
        constexpr int spare = 2;
        upper_rows_.reserve(r, in_row[at(r)] + spare);
    }
    for (const auto& e : sequence.upper)
        if (const int r = row_of_column[at(e.column)]; r >= 0) {
            upper_columns_.append(r, e.row, e.value);
            upper_rows_.append(e.row, r, e.value);
        }
    std::fill(in_row.begin(), in_row.end(), 0);
    for (const int r : sequence.rows)
        for (int k = 0; k < lower_columns_.size(r); ++k)
            ++in_row[at(lower_columns_.index(r)[k])];
    for (const int r : sequence.rows) {
        lower_rows_.reserve(r, in_row[at(r)]);
        if (in_row[at(r)] > 0 || lower_columns_.size(r) > 0) lower_order_.push_back(r);
    }
    for (const int r : sequence.rows)
        for (int k = 0; k < lower_columns_.size(r); ++k)
            lower_rows_.append(lower_columns_.index(r)[k], r, lower_columns_.value(r)[k]);
    update_row_.clear();
    update_start_.assign(1, 0);
    update_index_.clear();
    update_value_.clear();
    updates_ = 0;
    footprint_ = upper_columns_.footprint();
    reach_.resize(m);
}

/// Finds the pivots of a basis. Slacks and singletons, which are most of the pivots, are found first. The remaining
/// pivots are found by the rule of Markowitz.
class basis_elimination {
public:
    basis_elimination(const compressed& a, const std::vector<int>& head, const pivot_rules& rules)
        : a_{a}, head_{head}, rules_{rules}, size_{static_cast<int>(head.size())} {
        out_.reset(size_);
        row_of_.assign(at(size_), none);
        row_done_.assign(at(size_), 0);
    }
    void run() {
        pivot_slacks();
        list_rows();
        peel_columns();
        peel_rows();
        pivot_nucleus();
    }
    [[nodiscard]] const pivot_sequence& sequence() const { return out_; }
    /// The pivot row of each column of the basis. Negative if the column has no pivot.
    [[nodiscard]] const std::vector<int>& rows() const { return row_of_; }
    /// The number of pivots that are slacks. Slacks are the first pivots.
    [[nodiscard]] std::size_t slacks() const { return slacks_; }
    /// Replaces a column without a pivot by the slack of `row`.
    void stand_in(int row, int column) {
        out_.pivot(row, column, 1.0);
        row_done_[at(row)] = 1;
    }
    [[nodiscard]] bool is_done(int row) const { return row_done_[at(row)] != 0; }

private:
    static constexpr int none = -1;
    [[nodiscard]] bool is_slack(int c) const { return head_[at(c)] >= a_.majors(); }
    template <class Visit> void each_entry(int c, Visit visit) const {
        const int j = head_[at(c)];
        for (int k = a_.begin(j); k < a_.end(j); ++k)
            visit(a_.index[at(k)], a_.value[at(k)]);
    }
    void finish(int row, int column, double value) {
        out_.pivot(row, column, value);
        row_done_[at(row)] = 1;
        row_of_[at(column)] = row;
    }
    void pivot_slacks() {
        for (int c = 0; c < size_; ++c) {
            if (!is_slack(c))
                structurals_.push_back(c);
            else if (const int r = head_[at(c)] - a_.majors(); !is_done(r))
                finish(r, c, 1.0);
        }
        slacks_ = out_.rows.size();
    }
    /// Lists the rows whose pivot isn't a slack. Entries of structural columns in rows with slack pivots move to U.
    void list_rows() {
        row_start_.assign(at(size_) + 1, 0);
        column_count_.assign(at(size_), 0);
        for (const int c : structurals_)
            each_entry(c, [&](int r, double v) {
                if (is_done(r)) {
                    out_.upper.push_back({c, r, v});
                    return;
                }
                ++row_start_[at(r) + 1];
                ++column_count_[at(c)];
            });
        for (int r = 0; r < size_; ++r)
            row_start_[at(r) + 1] += row_start_[at(r)];
        row_columns_.resize(at(row_start_.back()));
        auto next = row_start_;
        for (const int c : structurals_)
            each_entry(c, [&](int r, double) {
                if (!is_done(r)) row_columns_[at(next[at(r)]++)] = c;
            });
        row_count_.resize(at(size_));
        for (int r = 0; r < size_; ++r)
            row_count_[at(r)] = row_start_[at(r) + 1] - row_start_[at(r)];
    }
    void peel_columns() {
        std::vector<int> singles;
        for (const int c : structurals_)
            if (column_count_[at(c)] == 1) singles.push_back(c);
        while (!singles.empty()) {
            const int c = singles.back();
            singles.pop_back();
            int row = none;
            double value = 0.0;
            each_entry(c, [&](int r, double v) {
                if (!is_done(r)) row = r, value = v;
            });
            if (row == none || std::abs(value) < rules_.least_pivot) continue;
            finish(row, c, value);
            for (int k = row_start_[at(row)]; k < row_start_[at(row) + 1]; ++k) {
                const int other = row_columns_[at(k)];
                if (row_of_[at(other)] != none) continue;
                out_.upper.push_back({other, row, entry_of(other, row)});
                if (--column_count_[at(other)] == 1) singles.push_back(other);
            }
        }
    }
    [[nodiscard]] double entry_of(int c, int row) const {
        const int j = head_[at(c)];
        int k = a_.begin(j);
        while (a_.index[at(k)] != row)
            ++k;
        return a_.value[at(k)];
    }
    void peel_rows() {
        std::vector<int> singles;
        count_rows();
        for (int r = 0; r < size_; ++r)
            if (!is_done(r) && row_count_[at(r)] == 1) singles.push_back(r);
        while (!singles.empty()) {
            const int row = singles.back();
            singles.pop_back();
            const int c = open_column(row);
            if (c == none || std::abs(entry_of(c, row)) < rules_.least_pivot) continue;
            const double value = entry_of(c, row);
            finish(row, c, value);
            if (column_count_[at(c)] > 1) out_.lower.reserve(row, column_count_[at(c)] - 1);
            each_entry(c, [&](int r, double v) {
                if (is_done(r)) return;
                out_.lower.append(row, r, v / value);
                if (--row_count_[at(r)] == 1) singles.push_back(r);
            });
        }
    }
    void count_rows() {
        std::fill(row_count_.begin(), row_count_.end(), 0);
        for (const int c : structurals_)
            if (row_of_[at(c)] == none) each_entry(c, [&](int r, double) { ++row_count_[at(r)]; });
    }
    [[nodiscard]] int open_column(int row) const {
        for (int k = row_start_[at(row)]; k < row_start_[at(row) + 1]; ++k)
            if (row_of_[at(row_columns_[at(k)])] == none) return row_columns_[at(k)];
        return none;
    }
    void pivot_nucleus() {
        std::vector<int> rows;
        std::vector<int> columns;
        for (const int c : structurals_)
            if (row_of_[at(c)] == none) columns.push_back(c);
        if (columns.empty()) return;
        markowitz nucleus{size_, size_, rules_, out_};
        for (int r = 0; r < size_; ++r)
            if (!is_done(r)) {
                rows.push_back(r);
                nucleus.reserve_row(r, 2 * row_count_[at(r)]);
            }
        for (const int c : columns) {
            int open = 0;
            each_entry(c, [&](int r, double) { open += is_done(r) ? 0 : 1; });
            nucleus.reserve_column(c, 2 * open);
            each_entry(c, [&](int r, double v) {
                if (!is_done(r)) nucleus.add(r, c, v);
            });
        }
        const auto first = out_.rows.size();
        nucleus.run(rows, columns);
        for (auto k = first; k < out_.rows.size(); ++k) {
            row_of_[at(out_.columns[k])] = out_.rows[k];
            row_done_[at(out_.rows[k])] = 1;
        }
    }

    const compressed& a_;
    const std::vector<int>& head_;
    pivot_rules rules_;
    int size_;
    pivot_sequence out_;
    std::size_t slacks_ = 0;
    std::vector<int> row_of_;
    std::vector<char> row_done_;
    std::vector<int> structurals_;
    std::vector<int> row_start_, row_columns_, row_count_, column_count_;
};

inline std::vector<replacement> factorization::build(const compressed& a, std::vector<int>& head,
                                                     const pivot_rules& rules) {
    basis_elimination elimination{a, head, rules};
    elimination.run();
    std::vector<replacement> replaced;
    auto placed = head;
    int row = 0;
    for (std::size_t c = 0; c < head.size(); ++c) {
        if (const int r = elimination.rows()[c]; r >= 0) {
            placed[at(r)] = head[c];
            continue;
        }
        while (elimination.is_done(row))
            ++row;
        elimination.stand_in(row, static_cast<int>(c));
        placed[at(row)] = a.majors() + row;
        replaced.push_back({head[c], row});
    }
    take(elimination.sequence(), elimination.rows());
    slacks_ = elimination.slacks();
    head = std::move(placed);
    return replaced;
}

} // namespace optpipe::milp::lp
