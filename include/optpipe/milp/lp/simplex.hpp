#pragma once

#include "optpipe/core/contract.hpp"
#include "optpipe/core/random.hpp"
#include "optpipe/milp/bytes.hpp"
#include "optpipe/milp/lp/basis.hpp"
#include "optpipe/milp/lp/certificate.hpp"
#include "optpipe/milp/lp/columns.hpp"
#include "optpipe/milp/lp/linear_program.hpp"
#include "optpipe/milp/lp/options.hpp"
#include "optpipe/milp/lp/rows.hpp"
#include "optpipe/milp/lp/scaled_tableau.hpp"
#include "optpipe/milp/lp/solution.hpp"
#include "optpipe/milp/lp/solve.hpp"

#include <cstddef>
#include <optional>
#include <span>
#include <utility>
#include <vector>

namespace optpipe::milp {

/// A tableau row: column + sum of columns[k] · x(k) + sum of slacks[i] · s(i) = 0, with s(i) = -(activity of row i). In
/// `columns`, the row's basic column has coefficient 1, and other basic columns have 0. The entries of `slacks` are
/// also the multipliers with which the program's rows add up to `columns`.
struct tableau_row {
    std::vector<double> columns;
    std::vector<double> slacks;
};

/// Solves a linear program by the dual simplex method. After changes of the program, the next solve starts from the
/// current basis. Copies are independent: use one per thread.
///
/// The results of `solve` are checked against the unscaled program.
class simplex {
public:
    explicit simplex(linear_program program, simplex_options options = {});

    [[nodiscard]] const linear_program& program() const { return program_; }
    [[nodiscard]] std::size_t rows() const { return program_.rows(); }
    [[nodiscard]] std::size_t columns() const { return program_.columns(); }

    void set_column_bounds(std::size_t j, double lower, double upper);
    void set_row_bounds(std::size_t i, double lower, double upper);
    /// Adds columns after the existing columns. New columns are nonbasic.
    void add_columns(std::span<const new_column> columns);
    /// Adds rows after the existing rows. The slacks of new rows are basic.
    void add_rows(std::span<const cut_row> rows);
    /// Removes rows. The rows after a removed row move up.
    void remove_rows(std::span<const std::size_t> rows);

    /// Sets the basis. If `b` has too few basic variables, slacks complete the basis. If `b` has too many basic
    /// variables or a singular matrix, slacks replace some of the variables.
    void set_basis(const basis& b);
    [[nodiscard]] basis current_basis() const { return scaled_.current_basis(); }
    [[nodiscard]] bool is_basic(std::size_t j) const { return scaled_.t.is_basic(static_cast<int>(j)); }

    lp_status solve(const simplex_limits& limits = {}) {
        return lp::solve_run{program_, scaled_, options_, limits, random_, found_}.run();
    }

    /// The optimal objective of the last solve. After `cutoff` or a limit, returns a valid lower bound on the optimum.
    [[nodiscard]] double objective() const { return found_.objective; }
    /// A lower bound that is valid for any outcome of the last solve. The bound is computed from the multipliers, with
    /// rounding on the safe side.
    [[nodiscard]] double dual_bound() const { return safe_dual_bound(program_, found_.point.duals); }
    /// Like `dual_bound`, with reduced costs that are rounding errors set to 0. The result is close to the optimum
    /// unless a larger reduced cost has the wrong sign.
    [[nodiscard]] double nearly_dual_bound() const {
        return safe_dual_bound(program_, found_.point.duals, true, lp::rounding_errors::count_as_zero);
    }
    [[nodiscard]] std::span<const double> primal() const { return found_.point.primal; }
    [[nodiscard]] std::span<const double> row_activity() const { return found_.point.row_activity; }
    /// Multipliers of the rows. A multiplier is positive if raising its row's lower bound raises the optimum.
    [[nodiscard]] std::span<const double> duals() const { return found_.point.duals; }
    [[nodiscard]] std::span<const double> reduced_costs() const { return found_.point.reduced_costs; }
    /// Multipliers that `verify_infeasible` accepts at least with tolerance 0. Valid after `infeasible`. All
    /// multipliers are 0 if a lower bound exceeds its upper bound.
    [[nodiscard]] std::span<const double> infeasibility_ray() const { return found_.infeasibility_ray; }
    /// A direction that `verify_unbounded` accepts. Valid after `unbounded`.
    [[nodiscard]] std::span<const double> unbounded_ray() const { return found_.unbounded_ray; }
    /// The number of iterations of all solves.
    [[nodiscard]] std::size_t iterations() const { return found_.iterations; }

    /// The number of bytes that `simplex_limits::memory` limits.
    [[nodiscard]] std::size_t working_bytes() const { return scaled_.t.bytes(); }
    [[nodiscard]] std::size_t bytes() const {
        return program_.bytes() + scaled_.t.bytes() + bytes_of(scaled_.scale.row, scaled_.scale.column) +
               found_.point.bytes() + bytes_of(found_.infeasibility_ray, found_.unbounded_ray);
    }
    /// The tableau row of a basic column, after a solve. Empty if the column isn't basic, as factorizing a singular
    /// basis replaces some of its columns.
    [[nodiscard]] std::optional<optpipe::milp::tableau_row> tableau_row(std::size_t j);

private:
    linear_program program_;
    simplex_options options_;
    lp::scaled_tableau scaled_;
    lp::findings found_;
    random_numbers random_;
};

inline simplex::simplex(linear_program program, simplex_options options)
    : program_{std::move(program)}, options_{options}, random_{options.seed} {
    OPTPIPE_EXPECT(program_.column_lower.size() == columns() && program_.column_upper.size() == columns() &&
                       program_.row_upper.size() == rows() &&
                       program_.matrix.rows() == static_cast<Eigen::Index>(rows()) &&
                       program_.matrix.cols() == static_cast<Eigen::Index>(columns()),
                   "the parts of a linear program must have matching sizes");
    scaled_.load(program_, options_.scaling);
    scaled_.reset_basis();
    found_.point.primal.assign(columns(), 0.0);
    found_.point.duals.assign(rows(), 0.0);
    lp::complete(program_, found_.point);
}

inline void simplex::set_column_bounds(std::size_t j, double lower, double upper) {
    OPTPIPE_EXPECT(j < columns(), "bounds of a column that the program doesn't have");
    program_.column_lower[j] = lower;
    program_.column_upper[j] = upper;
    scaled_.set_column_bounds(j, lower, upper);
}

inline void simplex::set_row_bounds(std::size_t i, double lower, double upper) {
    OPTPIPE_EXPECT(i < rows(), "bounds of a row that the program doesn't have");
    program_.row_lower[i] = lower;
    program_.row_upper[i] = upper;
    scaled_.set_row_bounds(i, lower, upper);
}

inline void simplex::add_columns(std::span<const new_column> columns) {
    if (columns.empty()) return;
    lp::append_columns(program_, columns);
    scaled_.append_columns(program_);
    found_.point.primal.resize(program_.columns(), 0.0);
}

inline void simplex::add_rows(std::span<const cut_row> rows) {
    if (rows.empty()) return;
    lp::append_rows(program_, rows);
    scaled_.t.status.resize(columns() + program_.rows(), basis_status::basic);
    scaled_.load(program_, options_.scaling);
    scaled_.complete_basis();
    found_.point.duals.resize(program_.rows(), 0.0);
}

inline void simplex::remove_rows(std::span<const std::size_t> removed) {
    if (removed.empty()) return;
    std::vector<int> place(rows(), 0);
    for (const auto i : removed) {
        OPTPIPE_EXPECT(i < rows(), "removal of a row that the program doesn't have");
        scaled_.make_basic(i);
        place[i] = -1;
    }
    auto& status = scaled_.t.status;
    auto& duals = found_.point.duals;
    std::size_t kept = 0;
    for (std::size_t i = 0; i < rows(); ++i) {
        if (place[i] < 0) continue;
        status[columns() + kept] = status[columns() + i];
        duals[kept] = duals[i];
        place[i] = static_cast<int>(kept++);
    }
    status.resize(columns() + kept);
    duals.resize(kept);
    lp::keep_rows(program_, place);
    scaled_.renumber_slacks(place);
    scaled_.load(program_, options_.scaling);
    scaled_.complete_basis();
}

inline void simplex::set_basis(const basis& b) {
    OPTPIPE_EXPECT(b.columns.size() == columns() && b.rows.size() == rows(),
                   "a basis has one status per column and row");
    scaled_.set_basis(b);
}

inline std::optional<tableau_row> simplex::tableau_row(std::size_t j) {
    OPTPIPE_EXPECT(j < columns(), "a row of the tableau for a column that the program doesn't have");
    if (!scaled_.is_factorized()) scaled_.factorize();
    if (!is_basic(j)) return std::nullopt;
    optpipe::milp::tableau_row result{std::vector(columns(), 0.0), scaled_.row_multipliers(j)};
    for (std::size_t k = 0; k < columns(); ++k)
        if (!is_basic(k))
            for (Eigen::SparseMatrix<double>::InnerIterator e(program_.matrix, static_cast<Eigen::Index>(k)); e; ++e)
                result.columns[k] += e.value() * result.slacks[static_cast<std::size_t>(e.row())];
    result.columns[j] = 1.0;
    return result;
}

} // namespace optpipe::milp
