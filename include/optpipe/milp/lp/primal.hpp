#pragma once

#include "optpipe/core/random.hpp"
#include "optpipe/milp/lp/method.hpp"
#include "optpipe/milp/lp/parameters.hpp"
#include "optpipe/milp/lp/perturbation.hpp"
#include "optpipe/milp/lp/tableau.hpp"
#include "optpipe/milp/lp/work_vector.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <vector>

namespace optpipe::milp::lp {

/// The bounded primal simplex method with devex pricing, from a primal feasible tableau. The primal method finishes a
/// solve if the dual method had to shift costs. `Interrupt` is called once per iteration.
template <class Interrupt> class primal_method {
public:
    primal_method(tableau& t, const method_settings& settings, random_numbers& random, Interrupt interrupt)
        : t_{t}, settings_{settings}, random_{random}, interrupt_{interrupt} {
        for (auto* v : {&rho_, &partial_, &column_, &spike_})
            v->resize(t.head.size());
        row_.resize(at(t.program.variables()));
        weight_.assign(at(t.program.variables()), 1.0);
        banned_.assign(at(t.program.variables()), 0);
    }

    method_end run() {
        start_afresh();
        for (;;) {
            if (t_.factors.updates() >= settings_.updates || t_.factors.is_bloated()) refactor();
            if (interrupt_()) return method_end::interrupted;
            switch (iterate()) {
            case step::done: break;
            case step::retry:
                if (++retries_ > parameters.most_retries) return method_end::trouble;
                refactor();
                break;
            case step::optimal:
                if (is_fresh_) return any_banned_ ? method_end::trouble : method_end::optimal;
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
    /// Whether the working bounds differ from the program's bounds.
    [[nodiscard]] bool bounds_changed() const { return bounds_changed_; }
    /// A direction in which the variables can move without limit. Valid after `method_end::ray`.
    [[nodiscard]] std::vector<double> ray() const {
        std::vector<double> direction(at(t_.program.variables()), 0.0);
        direction[at(entering_)] = direction_;
        for (const int i : column_.index)
            direction[at(t_.head[at(i)])] = -direction_ * column_[i];
        return direction;
    }

private:
    enum class step : unsigned char { done, retry, optimal, ray };
    static constexpr int none = -1;

    void refactor() {
        t_.factorize();
        start_afresh();
    }
    void start_afresh() {
        t_.compute_values();
        t_.compute_reduced_costs();
        std::fill(banned_.begin(), banned_.end(), 0);
        any_banned_ = false;
        is_fresh_ = true;
    }
    [[nodiscard]] int price() const {
        int best = none;
        double most = 0.0;
        for (int j = 0; j < t_.program.variables(); ++j) {
            const double a = t_.attraction(j, settings_.dual_tolerance);
            if (a * a <= most * weight_[at(j)] || banned_[at(j)] != 0) continue;
            most = a * a / weight_[at(j)];
            best = j;
        }
        return best;
    }

    step iterate() {
        entering_ = price();
        if (entering_ == none) return step::optimal;
        direction_ = t_.reduced_cost[at(entering_)] < 0.0 ? 1.0 : -1.0;
        column_.clear();
        t_.add_column(entering_, 1.0, column_);
        t_.factors.forward(column_, t_.column_density, &spike_);
        choose_row();
        const double range = t_.upper[at(entering_)] - t_.lower[at(entering_)];
        if (row_index_ == none && !std::isfinite(range)) return step::ray;
        if (row_index_ == none || range <= length_) {
            flip(range);
            return step::done;
        }
        if (!is_reliable()) return step::retry;
        return exchange();
    }

    struct limit {
        double room;
        double pivot;
    };
    /// The distance of a row's basic variable from its next bound, and the rate of the move.
    [[nodiscard]] limit limit_of(int row) const {
        const auto j = at(t_.head[at(row)]);
        const double rate = direction_ * column_[row];
        return rate > 0.0 ? limit{t_.value[j] - t_.lower[j], rate} : limit{t_.upper[j] - t_.value[j], -rate};
    }
    /// The ratio test of Harris (1973). Chooses the row with the largest pivot among the rows that block within the
    /// tolerance.
    void choose_row() {
        double relaxed = std::numeric_limits<double>::infinity();
        const bool fresh = t_.factors.updates() == 0;
        const double least = fresh ? parameters.least_pivot_of_fresh : parameters.least_pivot_of_updated;
        for (const int i : column_.index)
            if (const auto l = limit_of(i); l.pivot > least)
                relaxed = std::min(relaxed, (std::max(l.room, 0.0) + settings_.primal_tolerance) / l.pivot);
        row_index_ = none;
        if (!std::isfinite(relaxed)) return;
        double best = 0.0;
        for (const int i : column_.index)
            if (const auto l = limit_of(i); l.pivot > least && l.room <= relaxed * l.pivot && l.pivot > best) {
                best = l.pivot;
                row_index_ = i;
                length_ = std::max(l.room, 0.0) / l.pivot;
            }
    }
    [[nodiscard]] bool is_reliable() {
        return t_.factors.updates() == 0 || std::abs(column_[row_index_]) > parameters.trusted_pivot;
    }
    void flip(double range) {
        move(range);
        auto& s = t_.status[at(entering_)];
        s = s == basis_status::at_lower ? basis_status::at_upper : basis_status::at_lower;
        t_.settle(entering_);
        ++iterations_;
        is_fresh_ = false;
    }
    void move(double length) {
        for (const int i : column_.index)
            t_.value[at(t_.head[at(i)])] -= direction_ * length * column_[i];
        t_.value[at(entering_)] += direction_ * length;
    }
    step exchange() {
        rho_.clear();
        rho_.insert(row_index_, 1.0);
        t_.factors.backward(rho_, t_.row_density, &partial_);
        t_.pivot_row(rho_, row_);
        const double pivot = column_[row_index_];
        if (std::abs(pivot - row_[entering_]) > parameters.pivot_agreement * std::max(1.0, std::abs(pivot))) {
            if (t_.factors.updates() > 0) return step::retry;
            banned_[at(entering_)] = 1;
            any_banned_ = true;
            return step::done;
        }
        const int leaving = t_.head[at(row_index_)];
        const bool to_lower = direction_ * pivot > 0.0;
        update_reduced_costs(leaving, pivot);
        move(length_);
        t_.value[at(leaving)] = to_lower ? t_.lower[at(leaving)] : t_.upper[at(leaving)];
        const bool sound = t_.factors.update(row_index_, spike_, partial_, pivot);
        t_.exchange(row_index_, entering_, to_lower ? basis_status::at_lower : basis_status::at_upper);
        t_.weight[at(row_index_)] = 1.0;
        ++iterations_;
        is_fresh_ = false;
        note_progress();
        if (!sound) refactor();
        return step::done;
    }
    void update_reduced_costs(int leaving, double pivot) {
        const double theta = t_.reduced_cost[at(entering_)] / pivot;
        const double reference = weight_[at(entering_)];
        double largest = 1.0;
        for (const int j : row_.index) {
            t_.reduced_cost[at(j)] -= theta * row_[j];
            const double ratio = row_[j] / pivot;
            double& w = weight_[at(j)];
            w = std::max(w, ratio * ratio * reference);
            largest = std::max(largest, w);
        }
        t_.reduced_cost[at(entering_)] = 0.0;
        t_.reduced_cost[at(leaving)] = -theta;
        weight_[at(leaving)] = std::max(1.0, reference / (pivot * pivot));
        if (largest > parameters.largest_weight) std::fill(weight_.begin(), weight_.end(), 1.0);
    }
    void note_progress() {
        degenerate_ = length_ > parameters.no_step ? std::max(0, degenerate_ - 1) : degenerate_ + 1;
        if (!settings_.perturb || bounds_changed_ || degenerate_ < parameters.primal_stall_limit) return;
        perturb_bounds(t_, parameters.bound_perturbation, random_);
        bounds_changed_ = true;
    }

    tableau& t_;
    method_settings settings_;
    random_numbers& random_;
    Interrupt interrupt_;
    std::vector<double> weight_;
    std::vector<char> banned_;
    work_vector rho_, partial_, column_, spike_, row_;
    int entering_ = none;
    int row_index_ = none;
    double direction_ = 1.0;
    double length_ = 0.0;
    std::size_t iterations_ = 0;
    int retries_ = 0;
    int degenerate_ = 0;
    bool any_banned_ = false;
    bool is_fresh_ = false;
    bool bounds_changed_ = false;
};

} // namespace optpipe::milp::lp
