#pragma once

#include "optpipe/milp/bytes.hpp"
#include "optpipe/milp/lp/basis.hpp"
#include "optpipe/milp/lp/compressed.hpp"
#include "optpipe/milp/lp/factorization.hpp"
#include "optpipe/milp/lp/parameters.hpp"
#include "optpipe/milp/lp/work_vector.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <vector>

namespace optpipe::milp::lp {

/// The scaled program as the simplex methods see it: A x + s = 0, slacks s(i) = -(activity of row i), and bounds on all
/// variables. Indices below `columns` stand for x, and other indices for s.
struct scaled_program {
    compressed by_column;
    compressed by_row;
    std::vector<double> lower;
    std::vector<double> upper;
    std::vector<double> cost;
    int columns = 0;
    int rows = 0;

    [[nodiscard]] int variables() const { return columns + rows; }
    [[nodiscard]] std::size_t bytes() const {
        return by_column.bytes() + by_row.bytes() + bytes_of(lower, upper, cost);
    }
};

/// A basis of a scaled program with its values, reduced costs, factors and weights. The simplex methods read and change
/// the members directly.
class tableau {
public:
    scaled_program program;
    /// Working bounds and costs of the methods. Working numbers differ from the program's if a method has shifted them,
    /// and in phase one.
    std::vector<double> lower, upper, cost;
    std::vector<double> value;
    std::vector<double> reduced_cost;
    std::vector<basis_status> status;
    /// The basic variable of each row, and the row of each basic variable.
    std::vector<int> head;
    std::vector<int> place;
    /// The weight of each row in the choice of the leaving variable.
    std::vector<double> weight;
    factorization factors;
    density_history column_density, row_density, weight_density, flip_density;
    pivot_rules rules;

    /// Memory in bytes, including the working memory of the methods.
    [[nodiscard]] std::size_t bytes() const {
        constexpr std::size_t work_vectors = 10;
        constexpr std::size_t per_entry = sizeof(double) + sizeof(int);
        return program.bytes() + factors.bytes() +
               bytes_of(lower, upper, cost, value, reduced_cost, status, head, place, weight, multipliers_) +
               per_entry * (work_vectors * head.size() + value.size());
    }
    [[nodiscard]] bool is_basic(int j) const { return status[at(j)] == basis_status::basic; }
    [[nodiscard]] bool is_fixed(int j) const { return lower[at(j)] == upper[at(j)]; }
    [[nodiscard]] bool is_free(int j) const {
        return lower[at(j)] == -std::numeric_limits<double>::infinity() &&
               upper[at(j)] == std::numeric_limits<double>::infinity();
    }

    void restore_bounds() {
        lower = program.lower;
        upper = program.upper;
    }
    void restore_costs() { cost = program.cost; }

    /// Makes room for nonbasic columns at the end. The indices of the slacks increase by `added`.
    void insert_columns(int added) {
        const auto put = [&](auto& v, auto inserted) { v.insert(v.begin() + program.columns, at(added), inserted); };
        for (auto* v : {&program.lower, &program.upper, &program.cost, &value, &reduced_cost})
            put(*v, 0.0);
        put(status, basis_status::free_at_zero);
        put(place, -1);
        for (int& j : head)
            if (j >= program.columns) j += added;
        program.columns += added;
    }

    /// Puts a nonbasic variable on one of its bounds, preferably on its previous bound.
    void settle(int j) {
        auto& s = status[at(j)];
        if (s == basis_status::basic) return;
        const bool has_lower = std::isfinite(lower[at(j)]);
        const bool has_upper = std::isfinite(upper[at(j)]);
        if (!has_lower && !has_upper)
            s = basis_status::free_at_zero;
        else if (s == basis_status::free_at_zero)
            s = has_lower && (!has_upper || std::abs(lower[at(j)]) <= std::abs(upper[at(j)])) ? basis_status::at_lower
                                                                                              : basis_status::at_upper;
        else if (s == basis_status::at_lower && !has_lower)
            s = basis_status::at_upper;
        else if (s == basis_status::at_upper && !has_upper)
            s = basis_status::at_lower;
        value[at(j)] = s == basis_status::free_at_zero ? 0.0
                       : s == basis_status::at_lower   ? lower[at(j)]
                                                       : upper[at(j)];
    }
    void settle_all() {
        for (int j = 0; j < program.variables(); ++j)
            settle(j);
    }

    /// Factorizes the basis. Returns false if slacks replaced variables of a singular basis.
    bool factorize() {
        std::vector<double> by_variable(at(program.variables()), 1.0);
        for (std::size_t i = 0; i < head.size(); ++i)
            by_variable[at(head[i])] = weight[i];
        const auto replaced = factors.build(program.by_column, head, rules);
        for (const auto& r : replaced) {
            status[at(r.variable)] = basis_status::free_at_zero;
            status[at(program.columns + r.row)] = basis_status::basic;
            settle(r.variable);
        }
        for (std::size_t i = 0; i < head.size(); ++i) {
            place[at(head[i])] = static_cast<int>(i);
            weight[i] = by_variable[at(head[i])];
        }
        return replaced.empty();
    }

    void add_column(int j, double factor, work_vector& to) const {
        if (j >= program.columns) {
            to.add(j - program.columns, factor);
            return;
        }
        const auto& a = program.by_column;
        for (int k = a.begin(j); k < a.end(j); ++k)
            to.add(a.index[at(k)], factor * a.value[at(k)]);
    }
    [[nodiscard]] double column_times(int j, const std::vector<double>& rows) const {
        if (j >= program.columns) return rows[at(j - program.columns)];
        const auto& a = program.by_column;
        double sum = 0.0;
        for (int k = a.begin(j); k < a.end(j); ++k)
            sum += a.value[at(k)] * rows[at(a.index[at(k)])];
        return sum;
    }

    /// Computes the values of the basic variables from the values of the nonbasic variables.
    void compute_values() {
        work_.resize(head.size());
        for (int j = 0; j < program.variables(); ++j)
            if (!is_basic(j) && value[at(j)] != 0.0) add_column(j, -value[at(j)], work_);
        density_history dense{1.0};
        factors.forward(work_, dense);
        for (std::size_t i = 0; i < head.size(); ++i)
            value[at(head[i])] = work_.value[i];
    }
    /// Computes the multipliers of the rows for the costs of the basic variables.
    void compute_multipliers(std::vector<double>& rows) {
        work_.resize(head.size());
        for (std::size_t i = 0; i < head.size(); ++i)
            if (cost[at(head[i])] != 0.0) work_.insert(static_cast<int>(i), cost[at(head[i])]);
        density_history dense{1.0};
        factors.backward(work_, dense);
        rows = work_.value;
    }
    void compute_reduced_costs() {
        compute_multipliers(multipliers_);
        for (int j = 0; j < program.variables(); ++j)
            reduced_cost[at(j)] = is_basic(j) ? 0.0 : cost[at(j)] - column_times(j, multipliers_);
    }

    [[nodiscard]] double objective() const {
        double sum = 0.0;
        for (std::size_t j = 0; j < cost.size(); ++j)
            if (value[j] != 0.0) sum += cost[j] * value[j];
        return sum;
    }
    /// The largest violation of a basic variable's bounds.
    [[nodiscard]] double primal_violation() const {
        double most = 0.0;
        for (const int j : head)
            most = std::max({most, lower[at(j)] - value[at(j)], value[at(j)] - upper[at(j)]});
        return most;
    }
    /// The amount by which a nonbasic variable's reduced cost has the wrong sign; 0 within the tolerance.
    [[nodiscard]] double attraction(int j, double tolerance) const {
        const double d = reduced_cost[at(j)];
        switch (status[at(j)]) {
        case basis_status::basic: return 0.0;
        case basis_status::at_lower: return d < -tolerance && !is_fixed(j) ? -d : 0.0;
        case basis_status::at_upper: return d > tolerance && !is_fixed(j) ? d : 0.0;
        case basis_status::free_at_zero: return std::abs(d) > tolerance ? std::abs(d) : 0.0;
        }
        return 0.0;
    }
    [[nodiscard]] bool is_dual_feasible(double tolerance) const {
        for (int j = 0; j < program.variables(); ++j)
            if (attraction(j, tolerance) > 0.0) return false;
        return true;
    }

    /// Computes the entries of the pivot row for the nonbasic variables that aren't fixed. `rho` is the row of the
    /// inverse.
    void pivot_row(const work_vector& rho, work_vector& row) const {
        row.clear();
        const double density = rho.density();
        if (density > parameters.by_columns) {
            for (int j = 0; j < program.columns; ++j)
                if (counts(j)) list(j, column_times(j, rho.value), row);
        } else if (density > parameters.by_sweep) {
            sweep_rows(rho, row);
        } else {
            gather_by_rows(rho, row);
        }
        for (const int i : rho.index)
            if (const int j = program.columns + i; counts(j)) row.insert(j, rho[i]);
    }

    /// Makes `entering` the basic variable of `row`. The replaced variable becomes nonbasic with status `to`.
    void exchange(int row, int entering, basis_status to) {
        const int leaving = head[at(row)];
        status[at(leaving)] = to;
        status[at(entering)] = basis_status::basic;
        head[at(row)] = entering;
        place[at(entering)] = row;
        place[at(leaving)] = -1;
    }

private:
    static constexpr double negligible = 1e-14;

    [[nodiscard]] bool counts(int j) const { return !is_basic(j) && lower[at(j)] != upper[at(j)]; }
    static void list(int j, double v, work_vector& row) {
        if (std::abs(v) > negligible) row.insert(j, v);
    }
    void gather_by_rows(const work_vector& rho, work_vector& row) const {
        const auto& a = program.by_row;
        for (const int i : rho.index) {
            const double factor = rho[i];
            for (int k = a.begin(i); k < a.end(i); ++k)
                row.add(a.index[at(k)], factor * a.value[at(k)]);
        }
        std::size_t kept = 0;
        for (const int j : row.index) {
            double& v = row.value[at(j)];
            if (std::abs(v) > negligible && counts(j))
                row.index[kept++] = j;
            else
                v = 0.0;
        }
        row.index.resize(kept);
    }
    /// Computes the entries for a dense `rho`. Listing the nonzero entries of a dense vector isn't worthwhile.
    void sweep_rows(const work_vector& rho, work_vector& row) const {
        const auto& a = program.by_row;
        double* const values = row.value.data();
        for (const int i : rho.index) {
            const double factor = rho[i];
            for (int k = a.begin(i); k < a.end(i); ++k)
                values[a.index[at(k)]] += factor * a.value[at(k)];
        }
        for (int j = 0; j < program.columns; ++j) {
            if (values[j] == 0.0) continue;
            if (std::abs(values[j]) > negligible && counts(j))
                row.index.push_back(j);
            else
                values[j] = 0.0;
        }
    }

    work_vector work_;
    std::vector<double> multipliers_;
};

} // namespace optpipe::milp::lp
