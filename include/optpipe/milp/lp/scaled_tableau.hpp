#pragma once

#include "optpipe/milp/lp/basis.hpp"
#include "optpipe/milp/lp/compressed.hpp"
#include "optpipe/milp/lp/linear_program.hpp"
#include "optpipe/milp/lp/scaling.hpp"
#include "optpipe/milp/lp/tableau.hpp"
#include "optpipe/milp/lp/work_vector.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <span>
#include <utility>
#include <vector>

namespace optpipe::milp::lp {

/// The status of a row's slack. Lower and upper bound are swapped, because the slack is the negative of the row's
/// activity.
[[nodiscard]] constexpr basis_status mirrored(basis_status s) {
    switch (s) {
    case basis_status::at_lower: return basis_status::at_upper;
    case basis_status::at_upper: return basis_status::at_lower;
    case basis_status::basic:
    case basis_status::free_at_zero: break;
    }
    return s;
}

/// The scaled tableau of a program, with its scale factors. The tableau follows changes of the program, and returns
/// points and multipliers in unscaled terms.
class scaled_tableau {
public:
    tableau t;
    scale_factors scale;

    [[nodiscard]] bool is_scaled() const { return is_scaled_; }
    [[nodiscard]] bool is_factorized() const { return is_factorized_; }
    [[nodiscard]] int slack(std::size_t i) const { return t.program.columns + static_cast<int>(i); }
    [[nodiscard]] std::size_t rows() const { return at(t.program.rows); }
    [[nodiscard]] std::size_t columns() const { return at(t.program.columns); }

    /// Reloads all data from the program, except the statuses.
    void load(const linear_program& program, bool scaled);
    /// Adds the new columns at the end of the program. The new columns are nonbasic and the row scales stay, so the
    /// factors stay valid.
    void append_columns(const linear_program& program);
    /// Makes all slacks basic.
    void reset_basis();
    /// Rebuilds the basis from the statuses of `t`. If too many variables are basic, some leave the basis. If too few
    /// variables are basic, slacks are added. Variables that stay basic keep their weights.
    void complete_basis();
    /// Drops the slacks of rows with `place` < 0, and renumbers the rest. Contract: the removed slacks are basic.
    void renumber_slacks(const std::vector<int>& place);
    void set_basis(const basis& b);
    [[nodiscard]] basis current_basis() const;
    /// Moves the slack of a row into the basis. The variable with the largest pivot leaves the basis.
    void make_basic(std::size_t row);

    void factorize() {
        t.factorize();
        is_factorized_ = true;
    }
    void forget_factors() { is_factorized_ = false; }

    void set_column_bounds(std::size_t j, double lower, double upper) {
        t.program.lower[j] = lower / scale.column[j];
        t.program.upper[j] = upper / scale.column[j];
    }
    void set_row_bounds(std::size_t i, double lower, double upper) {
        t.program.lower[at(slack(i))] = -upper * scale.row[i];
        t.program.upper[at(slack(i))] = -lower * scale.row[i];
    }
    void set_cost(std::size_t j, double cost) { t.program.cost[j] = cost * scale.column[j]; }

    void extract_primal(const linear_program& program, std::vector<double>& primal) const {
        primal.resize(columns());
        for (std::size_t j = 0; j < columns(); ++j)
            switch (t.status[j]) {
            case basis_status::basic: primal[j] = t.value[j] * scale.column[j]; break;
            case basis_status::at_lower: primal[j] = program.column_lower[j]; break;
            case basis_status::at_upper: primal[j] = program.column_upper[j]; break;
            case basis_status::free_at_zero: primal[j] = 0.0; break;
            }
    }
    void extract_duals(std::vector<double>& duals) {
        t.compute_multipliers(duals);
        unscale_multipliers(duals);
    }
    void unscale_multipliers(std::vector<double>& multipliers) const {
        for (std::size_t i = 0; i < rows(); ++i)
            multipliers[i] *= scale.row[i];
    }
    [[nodiscard]] std::vector<double> unscaled_direction(std::vector<double> direction) const {
        direction.resize(columns());
        for (std::size_t j = 0; j < columns(); ++j)
            direction[j] *= scale.column[j];
        return direction;
    }
    /// The multipliers with which the program's rows add up to the tableau row of basic column j. In the tableau row,
    /// column j has coefficient 1.
    [[nodiscard]] std::vector<double> row_multipliers(std::size_t j) {
        if (!is_factorized_) factorize();
        work_vector rho;
        rho.resize(rows());
        rho.insert(t.place[j], 1.0);
        t.factors.backward(rho, t.row_density);
        auto multipliers = rho.value;
        unscale_multipliers(multipliers);
        for (double& v : multipliers)
            v *= scale.column[j];
        return multipliers;
    }

private:
    void scale_entries(compressed& a, const std::vector<double>& major, const std::vector<double>& minor) const {
        for (int j = 0; j < a.majors(); ++j)
            for (int k = a.begin(j); k < a.end(j); ++k)
                a.value[at(k)] *= major[at(j)] * minor[at(a.index[at(k)])];
    }

    bool is_scaled_ = true;
    bool is_factorized_ = false;
};

inline void scaled_tableau::load(const linear_program& program, bool scaled) {
    is_scaled_ = scaled;
    is_factorized_ = false;
    scaled_program p;
    p.columns = static_cast<int>(program.columns());
    p.rows = static_cast<int>(program.rows());
    p.by_column = compress(program.matrix);
    p.by_row = transpose(p.by_column, p.rows);
    scale = scaled ? geometric_scaling(p.by_column, p.by_row)
                   : scale_factors{std::vector(program.rows(), 1.0), std::vector(program.columns(), 1.0)};
    scale_entries(p.by_column, scale.column, scale.row);
    scale_entries(p.by_row, scale.row, scale.column);
    const auto variables = at(p.variables());
    for (auto* v : {&p.lower, &p.upper, &p.cost})
        v->assign(variables, 0.0);
    t.program = std::move(p);
    for (std::size_t j = 0; j < columns(); ++j) {
        set_column_bounds(j, program.column_lower[j], program.column_upper[j]);
        set_cost(j, program.cost[j]);
    }
    for (std::size_t i = 0; i < rows(); ++i)
        set_row_bounds(i, program.row_lower[i], program.row_upper[i]);
    t.restore_bounds();
    t.restore_costs();
    t.value.resize(variables);
    t.reduced_cost.resize(variables);
}

inline void scaled_tableau::append_columns(const linear_program& program) {
    auto& a = t.program.by_column;
    const auto first = columns();
    for (auto j = first; j < program.columns(); ++j) {
        for (Eigen::SparseMatrix<double>::InnerIterator e(program.matrix, static_cast<Eigen::Index>(j)); e; ++e)
            if (e.value() != 0.0) {
                a.index.push_back(static_cast<int>(e.row()));
                a.value.push_back(e.value());
            }
        a.start.push_back(static_cast<int>(a.index.size()));
        scale.column.push_back(is_scaled_ ? scale_of_column(a, static_cast<int>(j), scale.row) : 1.0);
        for (int k = a.begin(static_cast<int>(j)); k < a.end(static_cast<int>(j)); ++k)
            a.value[at(k)] *= scale.column[j] * scale.row[at(a.index[at(k)])];
    }
    t.program.by_row = transpose(a, t.program.rows);
    t.insert_columns(static_cast<int>(program.columns() - first));
    for (auto j = first; j < columns(); ++j) {
        set_column_bounds(j, program.column_lower[j], program.column_upper[j]);
        set_cost(j, program.cost[j]);
    }
    t.restore_bounds();
    t.restore_costs();
}

inline void scaled_tableau::reset_basis() {
    t.status.assign(columns() + rows(), basis_status::free_at_zero);
    std::fill(t.status.begin() + static_cast<std::ptrdiff_t>(columns()), t.status.end(), basis_status::basic);
    t.weight.assign(rows(), 1.0);
    t.head.clear();
    complete_basis();
}

inline void scaled_tableau::complete_basis() {
    std::vector<double> by_variable(t.status.size(), 1.0);
    for (std::size_t i = 0; i < t.head.size(); ++i)
        by_variable[at(t.head[i])] = t.weight[i];
    t.head.clear();
    for (std::size_t j = 0; j < t.status.size(); ++j) {
        if (t.status[j] != basis_status::basic) continue;
        if (t.head.size() == rows())
            t.status[j] = basis_status::free_at_zero;
        else
            t.head.push_back(static_cast<int>(j));
    }
    for (std::size_t i = 0; i < rows() && t.head.size() < rows(); ++i)
        if (auto& s = t.status[at(slack(i))]; s != basis_status::basic) {
            s = basis_status::basic;
            t.head.push_back(slack(i));
        }
    t.weight.resize(rows());
    for (std::size_t i = 0; i < rows(); ++i)
        t.weight[i] = by_variable[at(t.head[i])];
    t.place.assign(t.status.size(), -1);
    is_factorized_ = false;
}

inline void scaled_tableau::renumber_slacks(const std::vector<int>& place) {
    std::size_t kept = 0;
    for (std::size_t r = 0; r < t.head.size(); ++r) {
        const int j = t.head[r];
        const int i = j < t.program.columns ? 0 : place[at(j - t.program.columns)];
        if (i < 0) continue;
        t.head[kept] = j < t.program.columns ? j : slack(at(i));
        t.weight[kept++] = t.weight[r];
    }
    t.head.resize(kept);
    t.weight.resize(kept);
}

inline void scaled_tableau::set_basis(const basis& b) {
    if (b == current_basis()) return;
    std::copy(b.columns.begin(), b.columns.end(), t.status.begin());
    std::transform(b.rows.begin(), b.rows.end(), t.status.begin() + static_cast<std::ptrdiff_t>(columns()), mirrored);
    complete_basis();
}

inline basis scaled_tableau::current_basis() const {
    const auto first_slack = t.status.begin() + static_cast<std::ptrdiff_t>(columns());
    basis b{{t.status.begin(), first_slack}, std::vector<basis_status>(rows())};
    std::transform(first_slack, t.status.end(), b.rows.begin(), mirrored);
    return b;
}

inline void scaled_tableau::make_basic(std::size_t row) {
    if (t.is_basic(slack(row))) return;
    if (!is_factorized_) factorize();
    if (t.is_basic(slack(row))) return;
    work_vector column;
    column.resize(rows());
    column.insert(static_cast<int>(row), 1.0);
    density_history history;
    t.factors.forward(column, history);
    const auto smaller = [&](int a, int b) { return std::abs(column[a]) < std::abs(column[b]); };
    const int best = *std::max_element(column.index.begin(), column.index.end(), smaller);
    t.exchange(best, slack(row), basis_status::free_at_zero);
    is_factorized_ = false;
}

} // namespace optpipe::milp::lp
