#pragma once

#include "optpipe/milp/bytes.hpp"
#include "optpipe/milp/lp/simplex.hpp"
#include "optpipe/milp/search/control.hpp"
#include "optpipe/milp/search/problem.hpp"
#include "optpipe/milp/search/propagation/domains.hpp"
#include "optpipe/milp/search/tree/proof_row.hpp"

#include <Eigen/SparseCore>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <memory>
#include <span>
#include <utility>
#include <vector>

namespace optpipe::milp::search {

/// The linear program of a problem. A `relaxation` adds its cuts after the rows of the problem.
[[nodiscard]] inline linear_program program_of(const problem& p) {
    linear_program lp;
    std::vector<Eigen::Triplet<double>> entries;
    entries.reserve(p.entries.size());
    for (std::size_t i = 0; i < p.rows(); ++i)
        for (const auto& e : p.row_entries(i))
            entries.emplace_back(static_cast<int>(i), static_cast<int>(e.column), e.coefficient);
    lp.matrix.resize(static_cast<Eigen::Index>(p.rows()), static_cast<Eigen::Index>(p.columns()));
    lp.matrix.setFromTriplets(entries.begin(), entries.end());
    lp.cost = p.cost;
    lp.column_lower = p.lower;
    lp.column_upper = p.upper;
    lp.row_lower = p.row_lower;
    lp.row_upper = p.row_upper;
    return lp;
}

/// A linear relaxation that follows the bounds of a search. Copies are independent.
class relaxation {
public:
    relaxation(const problem& p, std::uint64_t seed)
        : problem_{&p}, lower_{p.lower}, upper_{p.upper}, solver_{program_of(p), options_for(seed)},
          bytes_without_factors_{solver_.working_bytes()} {}

    [[nodiscard]] simplex& solver() { return solver_; }
    [[nodiscard]] const extra_rows& cuts() const { return cuts_; }

    void follow(const domains& d) {
        for (std::size_t j = 0; j < lower_.size(); ++j)
            set_bounds(j, d.lower(j), d.upper(j));
    }
    void set_bounds(std::size_t j, double low, double up) {
        if (lower_[j] == low && upper_[j] == up) return;
        lower_[j] = low;
        upper_[j] = up;
        solver_.set_column_bounds(j, low, up);
    }
    [[nodiscard]] double lower(std::size_t j) const { return lower_[j]; }
    [[nodiscard]] double upper(std::size_t j) const { return upper_[j]; }

    /// Reports infeasibility only if it persists with the rows' sides moved outwards by their noise. The relaxation's
    /// point may violate the original sides by up to the noise.
    lp_status solve(control& c, double cutoff, std::size_t iterations = std::numeric_limits<std::size_t>::max()) {
        simplex_limits limits;
        limits.iterations = iterations;
        limits.cutoff = cutoff;
        limits.stop = c.token();
        limits.deadline = c.deadline();
        limits.memory = most_bytes(c.memory_left_for_one());
        const auto before = solver_.iterations();
        auto status = solver_.solve(limits);
        if (status == lp_status::infeasible && !is_clearly_infeasible()) status = solve_wider(limits);
        c.count_iterations(solver_.iterations() - before);
        if (status == lp_status::stopped && solver_.working_bytes() > limits.memory) c.end(limit::memory);
        return status;
    }
    /// Number of bytes, including the memory for factorizing a basis.
    [[nodiscard]] std::size_t bytes() const {
        return solver_.bytes() + room_for(solver_.working_bytes()) + bytes_of(lower_, upper_) + bytes_of_rows(cuts_);
    }
    /// The effort of all solves. One unit takes about as long as a row visit in propagation.
    [[nodiscard]] std::size_t effort() const {
        return effort_of(solver_.iterations(), problem_->rows() + cuts_.size() + problem_->columns());
    }
    /// The effort of `iterations` iterations. `lines` is the number of rows plus the number of columns.
    [[nodiscard]] static std::size_t effort_of(std::size_t iterations, std::size_t lines) {
        constexpr std::size_t share = 4;
        return iterations * (1 + lines / share);
    }
    /// Sets a basis that may belong to a relaxation with other cuts. The slacks of cuts that are missing in the basis
    /// become basic.
    void set_basis(const basis& b) {
        const auto rows = problem_->rows() + cuts_.size();
        if (b.rows.size() == rows) return solver_.set_basis(b);
        auto fitted = b;
        fitted.rows.resize(rows, basis_status::basic);
        solver_.set_basis(fitted);
    }
    /// Makes the next solve start from the slack basis.
    void forget_basis() {
        basis fresh;
        for (std::size_t j = 0; j < lower_.size(); ++j)
            fresh.columns.push_back(std::isfinite(lower_[j])   ? basis_status::at_lower
                                    : std::isfinite(upper_[j]) ? basis_status::at_upper
                                                               : basis_status::free_at_zero);
        fresh.rows.assign(problem_->rows() + cuts_.size(), basis_status::basic);
        solver_.set_basis(fresh);
    }
    /// A lower bound that is valid for any status of the last solve.
    [[nodiscard]] double bound() const { return solver_.dual_bound() - error_of_bound(); }
    /// Like `bound`, but without the rounding errors of reduced costs.
    [[nodiscard]] double nearly_bound() const { return solver_.nearly_dual_bound() - error_of_bound(); }
    [[nodiscard]] std::span<const double> point() const { return solver_.primal(); }

    void add_cuts(std::span<const sparse_row> cuts) {
        std::vector<cut_row> rows;
        for (const auto& c : cuts) {
            cut_row r{{}, c.lower, c.upper};
            for (const auto& e : c.entries)
                r.terms.emplace_back(e.column, e.coefficient);
            rows.push_back(std::move(r));
            cuts_.push_back(c);
        }
        solver_.add_rows(rows);
    }
    /// The cuts with basic rows, which aren't tight at the point of the last solve. Only cuts from index `first` on are
    /// examined.
    [[nodiscard]] std::vector<std::size_t> loose_cuts(std::size_t first = 0) const {
        const auto statuses = solver_.current_basis().rows;
        std::vector<std::size_t> loose;
        for (auto k = first; k < cuts_.size(); ++k)
            if (statuses[problem_->rows() + k] == basis_status::basic) loose.push_back(k);
        return loose;
    }
    /// `positions` are indices among the cuts, in ascending order.
    void remove_cuts(std::span<const std::size_t> positions) {
        std::vector<std::size_t> rows;
        for (const auto k : positions)
            rows.push_back(problem_->rows() + k);
        solver_.remove_rows(rows);
        for (auto k = positions.rbegin(); k != positions.rend(); ++k)
            cuts_.erase(cuts_.begin() + static_cast<std::ptrdiff_t>(*k));
    }

private:
    /// Additional memory of a factorization, as a multiple of the factors' memory (measured). Lists grow, and the part
    /// that isn't eliminated yet has lists of its own.
    static constexpr double room_per_factors = 1.6;

    [[nodiscard]] std::size_t room_for(std::size_t working) const {
        const auto factors = working - std::min(working, bytes_without_factors_);
        return static_cast<std::size_t>(room_per_factors * static_cast<double>(factors));
    }
    /// The memory limit with which the solver may grow by at most `left` bytes. The additional memory during a
    /// factorization counts as growth.
    [[nodiscard]] std::size_t most_bytes(std::size_t left) const {
        constexpr auto unlimited = std::numeric_limits<std::size_t>::max();
        const double growth = static_cast<double>(left) / (1.0 + room_per_factors);
        return left == unlimited ? unlimited : solver_.working_bytes() + static_cast<std::size_t>(growth);
    }
    /// The amount by which the errors of the rows' sides may raise the bound.
    [[nodiscard]] double error_of_bound() const {
        const auto duals = solver_.duals();
        double error = 0.0;
        for (std::size_t i = 0; i < std::min(duals.size(), problem_->rows()); ++i)
            error += std::abs(duals[i]) * problem_->row_noise[i];
        return error;
    }
    [[nodiscard]] bool is_clearly_infeasible() const {
        const auto ray = solver_.infeasibility_ray();
        const auto& lp = solver_.program();
        double noise = 0.0;
        for (std::size_t i = 0; i < ray.size(); ++i)
            noise += std::abs(ray[i]) * noise_of_row(i, ray[i] > 0.0 ? lp.row_lower[i] : lp.row_upper[i]);
        return safe_dual_bound(lp, ray, false) > noise;
    }
    [[nodiscard]] double noise_of_row(std::size_t i, double side) const {
        return problem_->tolerances.noise_at(side) + (i < problem_->rows() ? problem_->row_noise[i] : 0.0);
    }
    /// Solves the program with all rows' sides moved outwards by their noise. If the wider program is infeasible, the
    /// original is infeasible beyond the noise.
    lp_status solve_wider(const simplex_limits& limits) {
        constexpr double times = 10.0;
        const auto lower = solver_.program().row_lower;
        const auto upper = solver_.program().row_upper;
        for (std::size_t i = 0; i < lower.size(); ++i)
            solver_.set_row_bounds(i, lower[i] - times * noise_of_row(i, lower[i]),
                                   upper[i] + times * noise_of_row(i, upper[i]));
        const auto status = solver_.solve(limits);
        for (std::size_t i = 0; i < lower.size(); ++i)
            solver_.set_row_bounds(i, lower[i], upper[i]);
        return status;
    }
    static simplex_options options_for(std::uint64_t seed) {
        simplex_options o;
        o.seed = seed;
        return o;
    }

    const problem* problem_;
    std::vector<double> lower_, upper_;
    extra_rows cuts_;
    simplex solver_;
    std::size_t bytes_without_factors_;
};

} // namespace optpipe::milp::search
