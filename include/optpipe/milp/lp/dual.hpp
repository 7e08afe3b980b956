#pragma once

#include "optpipe/core/random.hpp"
#include "optpipe/milp/lp/method.hpp"
#include "optpipe/milp/lp/parameters.hpp"
#include "optpipe/milp/lp/perturbation.hpp"
#include "optpipe/milp/lp/pricing.hpp"
#include "optpipe/milp/lp/ratio_test.hpp"
#include "optpipe/milp/lp/tableau.hpp"
#include "optpipe/milp/lp/work_vector.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <vector>

namespace optpipe::milp::lp {

/// The bounded dual simplex method. The method starts from a dual feasible, factorized tableau with valid values.
/// `Interrupt` is called once per iteration with the objective of the working costs.
template <class Interrupt> class dual_method {
public:
    dual_method(tableau& t, const method_settings& settings, random_numbers& random, Interrupt interrupt)
        : t_{t}, settings_{settings}, random_{random}, interrupt_{interrupt}, pricing_{t, settings.primal_tolerance} {
        for (auto* v : {&rho_, &partial_, &column_, &spike_, &tau_, &flips_})
            v->resize(t.head.size());
        row_.resize(at(t.program.variables()));
    }

    method_end run() {
        start_afresh();
        for (;;) {
            if (t_.factors.updates() >= settings_.updates || t_.factors.is_bloated()) refactor();
            if (interrupt_(objective_)) return method_end::interrupted;
            if (wants_perturbation_) perturb();
            switch (iterate()) {
            case step::done: break;
            case step::retry:
                if (++retries_ > parameters.most_retries) return method_end::trouble;
                refactor();
                break;
            case step::feasible:
                if (banned_ && iterations_ == fresh_iterations_) return method_end::trouble;
                if (is_fresh_) return method_end::optimal;
                start_afresh();
                break;
            case step::ray:
                if (t_.factors.updates() == 0) return method_end::ray;
                refactor();
                break;
            }
        }
    }
    [[nodiscard]] std::size_t iterations() const { return iterations_; }
    /// Whether the working costs differ from the program's costs.
    [[nodiscard]] bool costs_changed() const { return costs_changed_; }
    /// The row multipliers that prove infeasibility after `method_end::ray`. The multipliers have the signs that
    /// `safe_dual_bound` needs.
    [[nodiscard]] std::vector<double> ray() const {
        auto y = rho_.value;
        for (double& v : y)
            v *= side_;
        return y;
    }

private:
    enum class step : unsigned char { done, retry, feasible, ray };

    void refactor() {
        t_.factorize();
        start_afresh();
    }
    void start_afresh() {
        t_.compute_values();
        t_.compute_reduced_costs();
        repair_costs();
        pricing_.refresh();
        objective_ = t_.objective();
        is_fresh_ = true;
        fresh_iterations_ = iterations_;
        banned_ = false;
    }
    void perturb() {
        perturb_costs(t_, parameters.cost_perturbation, random_);
        objective_ = t_.objective();
        wants_perturbation_ = false;
        perturbed_ = true;
        costs_changed_ = true;
    }
    /// Keeps a reduced cost on its side of 0 by changing the working cost.
    void shift(int j) {
        const double d = t_.reduced_cost[at(j)];
        const auto s = t_.status[at(j)];
        const bool wrong = s == basis_status::at_lower ? d < 0.0 : s == basis_status::at_upper ? d > 0.0 : d != 0.0;
        if (!wrong || t_.is_fixed(j)) return;
        t_.cost[at(j)] -= d;
        t_.reduced_cost[at(j)] = 0.0;
        costs_changed_ = true;
    }
    void repair_costs() {
        bool flipped = false;
        for (int j = 0; j < t_.program.variables(); ++j) {
            if (t_.is_basic(j) || t_.is_fixed(j)) continue;
            const double d = t_.reduced_cost[at(j)];
            auto& s = t_.status[at(j)];
            const bool wrong = s == basis_status::at_lower   ? d < -settings_.dual_tolerance
                               : s == basis_status::at_upper ? d > settings_.dual_tolerance
                                                             : d != 0.0;
            if (!wrong) continue;
            if (std::isfinite(t_.lower[at(j)]) && std::isfinite(t_.upper[at(j)])) {
                s = s == basis_status::at_lower ? basis_status::at_upper : basis_status::at_lower;
                t_.settle(j);
                flipped = true;
            } else {
                shift(j);
            }
        }
        if (flipped) t_.compute_values();
    }

    step iterate() {
        const int row = choose_row();
        if (row < 0) return step::feasible;
        const double violation = pricing_.violation(row);
        side_ = violation > 0.0 ? 1.0 : -1.0;
        t_.pivot_row(rho_, row_);
        const double beyond = std::abs(violation) - settings_.primal_tolerance;
        ratio_test_.run(t_, row_, side_, beyond, least_pivot(), settings_.dual_tolerance);
        const int entering = ratio_test_.entering();
        if (entering < 0) return step::ray;
        column_.clear();
        t_.add_column(entering, 1.0, column_);
        t_.factors.forward(column_, t_.column_density, &spike_);
        if (!is_reliable(row, entering)) {
            if (t_.factors.updates() > 0) return step::retry;
            pricing_.ban(row);
            banned_ = true;
            is_fresh_ = false;
            return step::done;
        }
        perform(row, entering);
        return step::done;
    }
    int choose_row() {
        for (;;) {
            const int row = pricing_.choose();
            if (row < 0) return row;
            rho_.clear();
            rho_.insert(row, 1.0);
            t_.factors.backward(rho_, t_.row_density, &partial_);
            if (pricing_.correct(row, rho_)) return row;
        }
    }
    [[nodiscard]] double least_pivot() const {
        const int updates = t_.factors.updates();
        if (updates < parameters.few_updates) return parameters.least_pivot_of_few;
        return updates < parameters.many_updates ? parameters.least_pivot_of_some : parameters.least_pivot_of_many;
    }
    /// A pivot is reliable if its values by row and by column agree.
    [[nodiscard]] bool is_reliable(int row, int entering) const {
        const double by_column = column_[row];
        const double by_row = row_[entering];
        const double size = std::min(std::abs(by_column), std::abs(by_row));
        if (t_.factors.updates() > 0 && size < parameters.trusted_pivot) return false;
        return size > 0.0 && std::abs(by_column - by_row) <= parameters.pivot_agreement * std::max(1.0, size) &&
               by_column * by_row > 0.0;
    }

    void perform(int row, int entering) {
        flip();
        const int leaving = t_.head[at(row)];
        const double bound = side_ > 0.0 ? t_.upper[at(leaving)] : t_.lower[at(leaving)];
        const double pivot = column_[row];
        update_reduced_costs(entering, leaving);
        tau_.copy(rho_);
        t_.factors.forward_values(tau_, t_.weight_density);
        pricing_.update(row, column_, tau_);

        const double step_length = (t_.value[at(leaving)] - bound) / pivot;
        for (const int i : column_.index)
            t_.value[at(t_.head[at(i)])] -= step_length * column_[i];
        t_.value[at(entering)] += step_length;
        t_.value[at(leaving)] = bound;
        const bool sound = t_.factors.update(row, spike_, partial_, pivot);
        t_.exchange(row, entering, side_ > 0.0 ? basis_status::at_upper : basis_status::at_lower);
        for (const int i : column_.index)
            pricing_.refresh(i);
        ++iterations_;
        is_fresh_ = false;
        if (!sound) refactor();
    }
    void flip() {
        if (ratio_test_.flipped().empty()) return;
        flips_.clear();
        for (const int j : ratio_test_.flipped()) {
            auto& s = t_.status[at(j)];
            const double before = t_.value[at(j)];
            s = s == basis_status::at_lower ? basis_status::at_upper : basis_status::at_lower;
            t_.settle(j);
            t_.add_column(j, before - t_.value[at(j)], flips_);
            objective_ += t_.reduced_cost[at(j)] * (t_.value[at(j)] - before);
        }
        t_.factors.forward(flips_, t_.flip_density);
        for (const int i : flips_.index) {
            t_.value[at(t_.head[at(i)])] += flips_[i];
            pricing_.refresh(i);
        }
    }
    void update_reduced_costs(int entering, int leaving) {
        // Harris's test may move a reduced cost slightly beyond 0, but the step must not be negative.
        const double pivot = row_[entering];
        if (t_.reduced_cost[at(entering)] * pivot * side_ < 0.0) {
            t_.cost[at(entering)] -= t_.reduced_cost[at(entering)];
            t_.reduced_cost[at(entering)] = 0.0;
            costs_changed_ = true;
        }
        const double theta = t_.reduced_cost[at(entering)] / pivot;
        note_progress(theta * side_);
        objective_ += theta * (t_.value[at(leaving)] - (side_ > 0.0 ? t_.upper[at(leaving)] : t_.lower[at(leaving)]));
        if (theta != 0.0)
            for (const int j : row_.index) {
                t_.reduced_cost[at(j)] -= theta * row_[j];
                shift(j);
            }
        t_.reduced_cost[at(entering)] = 0.0;
        t_.reduced_cost[at(leaving)] = -theta;
    }
    /// Requests a perturbation after many steps without progress.
    void note_progress(double theta) {
        degenerate_ = theta > parameters.no_step ? std::max(0, degenerate_ - 1) : degenerate_ + 1;
        if (!settings_.perturb || perturbed_ || degenerate_ < parameters.dual_stall_limit) return;
        wants_perturbation_ = true;
    }

    tableau& t_;
    method_settings settings_;
    random_numbers& random_;
    Interrupt interrupt_;
    dual_pricing pricing_;
    dual_ratio_test ratio_test_;
    work_vector rho_, partial_, column_, spike_, tau_, flips_, row_;
    double side_ = 1.0;
    double objective_ = 0.0;
    std::size_t iterations_ = 0;
    std::size_t fresh_iterations_ = 0;
    int retries_ = 0;
    int degenerate_ = 0;
    bool is_fresh_ = false;
    bool banned_ = false;
    bool perturbed_ = false;
    bool wants_perturbation_ = false;
    bool costs_changed_ = false;
};

} // namespace optpipe::milp::lp
