#pragma once

#include "optpipe/milp/presolve/implied_bounds.hpp"
#include "optpipe/milp/presolve/parameters.hpp"
#include "optpipe/milp/presolve/reducible.hpp"
#include "optpipe/milp/presolve/reductions.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <span>
#include <vector>

namespace optpipe::milp::presolving {

/// Tries bounds without changing the model. Derives further bounds row by row, and reports a contradiction.
class propagation {
public:
    propagation(const reducible& m, const margins& slack) : m_{&m}, slack_{slack} {
        for (const variable x : m.all_variables()) {
            lower_.push_back(m.lower(x));
            upper_.push_back(m.upper(x));
        }
        is_queued_.resize(m.all_rows().size(), false);
        was_changed_.resize(lower_.size(), false);
    }

    /// Returns false if x = value is found to lead to a contradiction. The work of one call is limited
    /// (`propagation_work`).
    bool assume(variable x, double value) {
        narrow(x, value, value);
        return propagate();
    }
    void undo() {
        for (const variable x : changed_) {
            lower_[x.position()] = m_->lower(x);
            upper_[x.position()] = m_->upper(x);
            was_changed_[x.position()] = false;
        }
        changed_.clear();
    }

    [[nodiscard]] double lower(variable x) const { return lower_[x.position()]; }
    [[nodiscard]] double upper(variable x) const { return upper_[x.position()]; }
    [[nodiscard]] std::span<const variable> changed() const { return changed_; }
    [[nodiscard]] bool has_changed(variable x) const { return was_changed_[x.position()]; }
    /// The number of terms examined.
    [[nodiscard]] std::size_t work() const { return work_; }

private:
    void narrow(variable x, double lower, double upper) {
        lower_[x.position()] = std::max(lower, lower_[x.position()]);
        upper_[x.position()] = std::min(upper, upper_[x.position()]);
        if (!was_changed_[x.position()]) changed_.push_back(x);
        was_changed_[x.position()] = true;
        for (const auto& e : m_->entries(x)) {
            if (is_queued_[e.at.position()]) continue;
            is_queued_[e.at.position()] = true;
            queue_.push_back(e.at);
        }
    }

    bool propagate() {
        const auto before = work_;
        bool is_possible = true;
        for (std::size_t next = 0; next < queue_.size(); ++next) {
            const row r = queue_[next];
            is_queued_[r.position()] = false;
            if (is_possible && work_ - before < parameters.propagation_work) is_possible = look_at(r);
        }
        queue_.clear();
        return is_possible;
    }

    bool look_at(row r) {
        const auto& terms = m_->terms(r);
        work_ += terms.size();
        activity_range range;
        double room = 0.0; // the largest range of a single term
        for (const auto& t : terms) {
            const double low = lower(t.column);
            const double high = upper(t.column);
            range.add(t.coefficient, low, high);
            room = std::max(room, std::abs(t.coefficient) * (high - low));
        }
        const double spare_above = m_->upper(r) - range.lower();
        const double spare_below = range.upper() - m_->lower(r);
        if (spare_above >= room && spare_below >= room && std::isfinite(room)) return true;
        const double noise = m_->noise(r) + range.noise(m_->lower(r), m_->upper(r));
        if (spare_above < -slack_.excess_at(m_->upper(r)) - noise ||
            spare_below < -slack_.excess_at(m_->lower(r)) - noise)
            return false;
        if (range.open_below > 1 && range.open_above > 1) return true;
        for (const auto& t : terms)
            if (lower(t.column) < upper(t.column) && !tighten(r, range, t, noise / std::abs(t.coefficient)))
                return false;
        return true;
    }

    /// Tightens the bounds of the term's column. Returns false if an integer variable has no value left. Crossing
    /// bounds of a continuous column are reported by the row.
    bool tighten(row r, const activity_range& range, const term& t, double noise) {
        const variable x = t.column;
        const double low = lower(x);
        const double high = upper(x);
        const double at_most = (m_->upper(r) - range.lower_without(t.coefficient, low, high)) / t.coefficient;
        const double at_least = (m_->lower(r) - range.upper_without(t.coefficient, low, high)) / t.coefficient;
        double new_lower = t.coefficient > 0.0 ? at_least : at_most;
        double new_upper = t.coefficient > 0.0 ? at_most : at_least;
        if (m_->is_integer(x)) {
            const double off = slack_.grace(m_->lower(r), m_->upper(r), t.coefficient, noise);
            new_lower = margins::rounded_up(new_lower, off);
            new_upper = margins::rounded_down(new_upper, off);
            if (new_lower > high || new_upper < low) return false;
        } else {
            new_lower -= noise;
            new_upper += noise;
        }
        const bool is_higher = slack_.is_worth(m_->is_integer(x), new_lower - low, high - low, new_lower);
        const bool is_lower = slack_.is_worth(m_->is_integer(x), high - new_upper, high - low, new_upper);
        if (is_higher || is_lower)
            narrow(x, is_higher ? std::min(new_lower, high) : low, is_lower ? std::max(new_upper, low) : high);
        return true;
    }

    const reducible* m_;
    margins slack_;
    std::vector<double> lower_;
    std::vector<double> upper_;
    std::vector<variable> changed_;
    std::vector<bool> was_changed_;
    std::vector<row> queue_;
    std::vector<bool> is_queued_;
    std::size_t work_ = 0;
};

} // namespace optpipe::milp::presolving
