#pragma once

#include "optpipe/core/contract.hpp"
#include "optpipe/core/random.hpp"
#include "optpipe/milp/lp/basis.hpp"
#include "optpipe/milp/lp/certificate.hpp"
#include "optpipe/milp/lp/dual.hpp"
#include "optpipe/milp/lp/linear_program.hpp"
#include "optpipe/milp/lp/method.hpp"
#include "optpipe/milp/lp/options.hpp"
#include "optpipe/milp/lp/primal.hpp"
#include "optpipe/milp/lp/rows.hpp"
#include "optpipe/milp/lp/scaling.hpp"
#include "optpipe/milp/lp/solution.hpp"
#include "optpipe/milp/lp/tableau.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <optional>
#include <span>
#include <utility>
#include <vector>

namespace optpipe::milp {

/// A row of the simplex tableau in the program's own terms: column + sum of columns[k] · x(k) + sum of
/// slacks[i] · s(i) = 0 with s(i) = -(activity of row i), where the basic column itself has coefficient 1 in
/// `columns`, and other basic ones 0. `slacks` are also the multipliers of the rows that combine to `columns`.
struct tableau_row {
    std::vector<double> columns;
    std::vector<double> slacks;
};

/// Solves a linear program by the dual simplex method, and again after changes, from the basis at hand. A copy is
/// independent: one per thread.
///
/// What `solve` claims has been checked against the program itself, not against its scaled copy.
class simplex {
public:
    explicit simplex(linear_program program, simplex_options options = {});

    [[nodiscard]] const linear_program& program() const { return program_; }
    [[nodiscard]] std::size_t rows() const { return program_.rows(); }
    [[nodiscard]] std::size_t columns() const { return program_.columns(); }

    void set_column_bounds(std::size_t j, double lower, double upper);
    void set_row_bounds(std::size_t i, double lower, double upper);
    void set_cost(std::size_t j, double cost);
    /// New rows follow the others; their slacks are basic.
    void add_rows(std::span<const cut_row> rows);
    /// The rows after a removed one move up.
    void remove_rows(std::span<const std::size_t> rows);

    /// Where it isn't a basis (too few or too many basic, or singular), slacks make it one.
    void set_basis(const basis& b);
    [[nodiscard]] basis current_basis() const;
    [[nodiscard]] bool is_basic(std::size_t j) const { return tableau_.is_basic(static_cast<int>(j)); }

    lp_status solve(const simplex_limits& limits = {});

    /// Of the last solve: the optimum; after `cutoff` or a limit a valid lower bound.
    [[nodiscard]] double objective() const { return objective_; }
    /// A bound that holds whatever the last solve ended with, computed from its multipliers with rounding on the safe
    /// side.
    [[nodiscard]] double dual_bound() const { return safe_dual_bound(program_, solution_.duals); }
    [[nodiscard]] std::span<const double> primal() const { return solution_.primal; }
    [[nodiscard]] std::span<const double> row_activity() const { return solution_.row_activity; }
    /// Multipliers of the rows: above 0 where a row holds the objective up at its lower bound.
    [[nodiscard]] std::span<const double> duals() const { return solution_.duals; }
    [[nodiscard]] std::span<const double> reduced_costs() const { return solution_.reduced_costs; }
    /// After `infeasible`: multipliers that `verify_infeasible` accepts; all 0 if a lower bound is above its upper.
    [[nodiscard]] std::span<const double> infeasibility_ray() const { return infeasibility_ray_; }
    /// After `unbounded`: a direction that `verify_unbounded` accepts.
    [[nodiscard]] std::span<const double> unbounded_ray() const { return unbounded_ray_; }
    /// Of all solves so far.
    [[nodiscard]] std::size_t iterations() const { return iterations_; }

    /// Only for a basic column, after a solve.
    [[nodiscard]] optpipe::milp::tableau_row tableau_row(std::size_t j);

private:
    void load(bool scaled);
    void reset_basis();
    void complete_basis();
    void factorize();
    [[nodiscard]] int slack(std::size_t i) const { return static_cast<int>(columns() + i); }
    [[nodiscard]] lp::method_settings settings(int attempt) const;
    [[nodiscard]] bool has_crossed_bounds() const;

    void prepare(int attempt);
    std::optional<lp_status> attempt(const lp::method_settings& settings);
    bool run_dual(const lp::method_settings& settings, bool& costs_changed);
    bool run_primal(const lp::method_settings& settings, bool& bounds_changed);
    [[nodiscard]] std::size_t most_iterations() const {
        constexpr std::size_t least = 50'000;
        constexpr std::size_t per_variable = 50;
        return least + per_variable * (columns() + rows());
    }
    bool is_interrupted();
    bool proves_cutoff(double objective);
    void stop_early();
    bool claims_infeasible(std::vector<double> multipliers);
    bool claims_unbounded(const std::vector<double>& direction);
    bool claims_optimal();
    void extract_primal();
    void extract_duals();
    void make_basic(std::size_t row);

    linear_program program_;
    simplex_options options_;
    lp::scale_factors scale_;
    lp::tableau tableau_;
    lp::solution solution_;
    std::vector<double> infeasibility_ray_, unbounded_ray_;
    random_numbers random_;
    simplex_limits limits_{};
    std::optional<lp_status> verdict_{};
    double objective_ = -std::numeric_limits<double>::infinity();
    double next_cutoff_check_ = 0.0;
    std::size_t iterations_ = 0;
    std::size_t first_iteration_ = 0;
    std::size_t attempt_iterations_ = 0;
    bool is_factorized_ = false;
    bool is_scaled_ = true;
};

inline simplex::simplex(linear_program program, simplex_options options)
    : program_{std::move(program)}, options_{options}, random_{options.seed} {
    OPTPIPE_EXPECT(program_.column_lower.size() == columns() && program_.column_upper.size() == columns() &&
                       program_.row_upper.size() == rows() &&
                       program_.matrix.rows() == static_cast<Eigen::Index>(rows()) &&
                       program_.matrix.cols() == static_cast<Eigen::Index>(columns()),
                   "the parts of a linear program must have matching sizes");
    load(options_.scaling);
    reset_basis();
    solution_.primal.assign(columns(), 0.0);
    solution_.duals.assign(rows(), 0.0);
    lp::complete(program_, solution_);
}

/// Everything scaled, from the program; the basis stays.
inline void simplex::load(bool scaled) {
    is_scaled_ = scaled;
    lp::scaled_program p;
    p.by_column = lp::compress(program_.matrix);
    p.by_row = lp::transpose(p.by_column, static_cast<int>(rows()));
    scale_ = scaled ? lp::geometric_scaling(p.by_column, p.by_row)
                    : lp::scale_factors{std::vector(rows(), 1.0), std::vector(columns(), 1.0)};
    p.columns = static_cast<int>(columns());
    p.rows = static_cast<int>(rows());
    for (auto* a : {&p.by_column, &p.by_row}) {
        const auto& major = a == &p.by_column ? scale_.column : scale_.row;
        const auto& minor = a == &p.by_column ? scale_.row : scale_.column;
        for (int j = 0; j < a->majors(); ++j)
            for (int k = a->begin(j); k < a->end(j); ++k)
                a->value[lp::at(k)] *= major[lp::at(j)] * minor[lp::at(a->index[lp::at(k)])];
    }
    for (std::size_t j = 0; j < columns(); ++j) {
        p.lower.push_back(program_.column_lower[j] / scale_.column[j]);
        p.upper.push_back(program_.column_upper[j] / scale_.column[j]);
        p.cost.push_back(program_.cost[j] * scale_.column[j]);
    }
    for (std::size_t i = 0; i < rows(); ++i) {
        p.lower.push_back(-program_.row_upper[i] * scale_.row[i]);
        p.upper.push_back(-program_.row_lower[i] * scale_.row[i]);
        p.cost.push_back(0.0);
    }
    tableau_.load(std::move(p));
    is_factorized_ = false;
}

inline void simplex::reset_basis() {
    tableau_.status.assign(columns() + rows(), basis_status::free_at_zero);
    std::fill(tableau_.status.begin() + static_cast<std::ptrdiff_t>(columns()), tableau_.status.end(),
              basis_status::basic);
    tableau_.weight.assign(rows(), 1.0);
    tableau_.head.clear();
    complete_basis();
}

/// The head from the statuses; weights of variables that were basic before are kept.
inline void simplex::complete_basis() {
    auto& t = tableau_;
    std::vector<double> by_variable(t.status.size(), 1.0);
    for (std::size_t i = 0; i < t.head.size(); ++i)
        by_variable[lp::at(t.head[i])] = t.weight[i];
    t.head.clear();
    for (std::size_t j = 0; j < t.status.size(); ++j) {
        if (t.status[j] != basis_status::basic) continue;
        if (t.head.size() == rows())
            t.status[j] = basis_status::free_at_zero;
        else
            t.head.push_back(static_cast<int>(j));
    }
    for (std::size_t i = 0; i < rows() && t.head.size() < rows(); ++i)
        if (auto& s = t.status[lp::at(slack(i))]; s != basis_status::basic) {
            s = basis_status::basic;
            t.head.push_back(slack(i));
        }
    t.weight.resize(rows());
    for (std::size_t i = 0; i < rows(); ++i)
        t.weight[i] = by_variable[lp::at(t.head[i])];
    t.place.assign(t.status.size(), -1);
    is_factorized_ = false;
}

inline void simplex::factorize() {
    tableau_.factorize();
    is_factorized_ = true;
}

inline void simplex::set_column_bounds(std::size_t j, double lower, double upper) {
    OPTPIPE_EXPECT(j < columns(), "bounds of a column that the program doesn't have");
    program_.column_lower[j] = lower;
    program_.column_upper[j] = upper;
    tableau_.program.lower[j] = lower / scale_.column[j];
    tableau_.program.upper[j] = upper / scale_.column[j];
}

inline void simplex::set_row_bounds(std::size_t i, double lower, double upper) {
    OPTPIPE_EXPECT(i < rows(), "bounds of a row that the program doesn't have");
    program_.row_lower[i] = lower;
    program_.row_upper[i] = upper;
    tableau_.program.lower[lp::at(slack(i))] = -upper * scale_.row[i];
    tableau_.program.upper[lp::at(slack(i))] = -lower * scale_.row[i];
}

inline void simplex::set_cost(std::size_t j, double cost) {
    OPTPIPE_EXPECT(j < columns(), "cost of a column that the program doesn't have");
    program_.cost[j] = cost;
    tableau_.program.cost[j] = cost * scale_.column[j];
}

inline void simplex::add_rows(std::span<const cut_row> rows) {
    if (rows.empty()) return;
    lp::append_rows(program_, rows);
    tableau_.status.resize(columns() + program_.rows(), basis_status::basic);
    load(is_scaled_);
    complete_basis();
    solution_.duals.resize(program_.rows(), 0.0);
}

/// Brings the slack of a row into the basis, for the variable that gives the largest pivot.
inline void simplex::make_basic(std::size_t row) {
    auto& t = tableau_;
    if (t.is_basic(slack(row))) return;
    if (!is_factorized_) factorize();
    if (t.is_basic(slack(row))) return;
    lp::work_vector column;
    column.resize(rows());
    column.insert(static_cast<int>(row), 1.0);
    lp::density_history history{1.0};
    t.factors.forward(column, history);
    int best = column.index.front();
    for (const int i : column.index)
        if (std::abs(column[i]) > std::abs(column[best])) best = i;
    t.exchange(best, slack(row), basis_status::free_at_zero);
    is_factorized_ = false;
}

inline void simplex::remove_rows(std::span<const std::size_t> removed) {
    if (removed.empty()) return;
    std::vector<int> place(rows(), 0);
    for (const auto i : removed) {
        OPTPIPE_EXPECT(i < rows(), "removal of a row that the program doesn't have");
        make_basic(i);
        place[i] = -1;
    }
    auto& t = tableau_;
    int kept = 0;
    std::vector<basis_status> status(t.status.begin(), t.status.begin() + static_cast<std::ptrdiff_t>(columns()));
    std::vector<double> duals;
    for (std::size_t i = 0; i < rows(); ++i) {
        if (place[i] < 0) continue;
        place[i] = kept++;
        status.push_back(t.status[lp::at(slack(i))]);
        duals.push_back(solution_.duals[i]);
    }
    lp::keep_rows(program_, place);
    t.status = std::move(status);
    t.head.clear();
    load(is_scaled_);
    complete_basis();
    solution_.duals = std::move(duals);
}

namespace lp {

/// The slack of a row is the negative of its activity, so its bounds trade places.
[[nodiscard]] constexpr basis_status mirrored(basis_status s) {
    switch (s) {
    case basis_status::at_lower: return basis_status::at_upper;
    case basis_status::at_upper: return basis_status::at_lower;
    case basis_status::basic:
    case basis_status::free_at_zero: break;
    }
    return s;
}

} // namespace lp

inline void simplex::set_basis(const basis& b) {
    OPTPIPE_EXPECT(b.columns.size() == columns() && b.rows.size() == rows(),
                   "a basis has one status per column and row");
    if (b == current_basis()) return;
    std::copy(b.columns.begin(), b.columns.end(), tableau_.status.begin());
    for (std::size_t i = 0; i < rows(); ++i)
        tableau_.status[lp::at(slack(i))] = lp::mirrored(b.rows[i]);
    complete_basis();
}

inline basis simplex::current_basis() const {
    const auto& s = tableau_.status;
    basis b{{s.begin(), s.begin() + static_cast<std::ptrdiff_t>(columns())}, {}};
    b.rows.reserve(rows());
    for (std::size_t i = 0; i < rows(); ++i)
        b.rows.push_back(lp::mirrored(s[lp::at(slack(i))]));
    return b;
}

inline tableau_row simplex::tableau_row(std::size_t j) {
    OPTPIPE_EXPECT(is_basic(j), "only basic columns have a row of the tableau");
    if (!is_factorized_) factorize();
    lp::work_vector rho;
    rho.resize(rows());
    rho.insert(tableau_.place[j], 1.0);
    tableau_.factors.backward(rho, tableau_.row_density);
    optpipe::milp::tableau_row row{std::vector(columns(), 0.0), std::vector(rows(), 0.0)};
    for (const int i : rho.index)
        row.slacks[lp::at(i)] = rho[i] * scale_.row[lp::at(i)] * scale_.column[j];
    for (std::size_t k = 0; k < columns(); ++k)
        if (!tableau_.is_basic(static_cast<int>(k)))
            for (Eigen::SparseMatrix<double>::InnerIterator e(program_.matrix, static_cast<Eigen::Index>(k)); e; ++e)
                row.columns[k] += e.value() * row.slacks[static_cast<std::size_t>(e.row())];
    row.columns[j] = 1.0;
    return row;
}

} // namespace optpipe::milp

#include "optpipe/milp/lp/solve.hpp"
