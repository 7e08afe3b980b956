#pragma once

#include "optpipe/milp/model.hpp"
#include "optpipe/milp/presolve/reducible.hpp"
#include "optpipe/milp/presolve/reductions.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace optpipe::milp {
namespace presolving {

/// The only place where reductions are applied. The reducer applies the reductions that still hold, in the order of the
/// proposals.
class reducer {
public:
    reducer(const model& m, const margins& slack, std::span<const double> noise = {}) : m_{m, noise}, slack_{slack} {
        // Rounds the bounds of integer variables first.
        for (const variable x : m.all_variables())
            if (m.is_integer(x))
                m_.set_bounds(x, slack_.feasible.rounded_up(m.lower(x)), slack_.feasible.rounded_down(m.upper(x)));
        for (const variable x : m.all_variables())
            if (apply(bound_column{x, m_.lower(x), m_.upper(x)}) == verdict::infeasible) is_infeasible_ = true;
        for (const row r : m.all_rows())
            if (apply(bound_row{r, m_.lower(r), m_.upper(r)}) == verdict::infeasible) is_infeasible_ = true;
    }

    [[nodiscard]] const reducible& state() const { return m_; }
    [[nodiscard]] const std::vector<undo>& undos() const { return undos_; }
    /// Whether the bounds of a single column or row already contradict each other.
    [[nodiscard]] bool is_infeasible() const { return is_infeasible_; }

    template <class Method> verdict run(const Method& method) {
        auto& seen = seen_[Method::name];
        proposal_list found;
        m_.normalize();
        method(m_, seen, slack_, found);
        m_.tick();
        seen = m_.now();
        verdict result = verdict::unchanged;
        for (const auto& p : found.proposals()) {
            const auto v = apply(p);
            if (v == verdict::unchanged) continue;
            result = v;
            if (v != verdict::applied) break;
        }
        return result;
    }

private:
    verdict apply(const proposal& p) {
        const auto now = m_.now();
        const auto is_lost = [&](auto item) { return !m_.has(item) || m_.has_changed(item, now); };
        if (std::any_of(p.rows.begin(), p.rows.end(), is_lost)) return verdict::unchanged;
        if (std::any_of(p.columns.begin(), p.columns.end(), is_lost)) return verdict::unchanged;
        verdict result = verdict::unchanged;
        for (const auto& step : p.steps) {
            // An earlier step may have removed the column or row of this step.
            if (!std::visit([&](const auto& r) { return is_possible(r); }, step)) break;
            const auto v = std::visit([&](const auto& r) { return apply(r); }, step);
            if (v == verdict::unchanged) continue;
            result = v;
            if (v != verdict::applied) break;
        }
        return result;
    }

    [[nodiscard]] bool is_possible(const bound_column& b) const { return m_.has(b.x); }
    [[nodiscard]] bool is_possible(const bound_row& b) const { return m_.has(b.at); }
    [[nodiscard]] bool is_possible(const remove_row& r) const { return m_.has(r.at); }
    [[nodiscard]] bool is_possible(const set_coefficient& c) const { return m_.has(c.at) && m_.has(c.x); }
    [[nodiscard]] bool is_possible(const fix_column& f) const { return m_.has(f.x); }
    [[nodiscard]] bool is_possible(const absorb_column& a) const { return m_.has(a.x) && m_.has(a.at); }
    [[nodiscard]] bool is_possible(const move_cost& c) const { return m_.has(c.x) && m_.has(c.equation); }
    [[nodiscard]] bool is_possible(const merge_columns& c) const { return m_.has(c.kept) && m_.has(c.merged); }
    [[nodiscard]] bool is_possible(const release_column& r) const { return m_.has(r.x); }
    [[nodiscard]] bool is_possible(const substitute_column& s) const {
        const auto is_there = [&](const term& t) { return m_.has(t.column); };
        return m_.has(s.x) && std::all_of(s.terms.begin(), s.terms.end(), is_there);
    }
    static bool is_possible(const give_up&) { return true; }

    verdict apply(const bound_column& b) {
        const bool is_integer = m_.is_integer(b.x);
        const double below =
            is_integer ? margins::rounded_up(b.lower, off(b, b.lower)) : b.lower - beyond_rounding(b.lower, b.noise);
        const double above =
            is_integer ? margins::rounded_down(b.upper, off(b, b.upper)) : b.upper + beyond_rounding(b.upper, b.noise);
        const double lower = std::max(m_.lower(b.x), below);
        const double upper = std::min(m_.upper(b.x), above);
        if (lower > upper + slack_.excess_at(lower)) return verdict::infeasible;
        // Nearly equal bounds stay apart, because other rows may need a value between them.
        if (lower >= upper) return apply(fixed(b.x, nearest(b.x, lower, upper)));
        if (lower == m_.lower(b.x) && upper == m_.upper(b.x)) return verdict::unchanged;
        m_.set_bounds(b.x, lower, upper);
        return verdict::applied;
    }
    static double off(const bound_column& b, double bound) {
        return std::max({b.noise, b.grace, std::isfinite(bound) ? margins::noise_at(bound) : 0.0});
    }
    /// Returns the noise, or 0 for a mere rounding error. Rounding errors aren't added to bounds, so that bounds keep
    /// their digits. The rows account for the rounding errors of bounds.
    static double beyond_rounding(double bound, double noise) { return noise > margins::noise_at(bound) ? noise : 0.0; }
    static fix_column fixed(variable x, double value) {
        return {x, value, value == std::round(value) ? 0.0 : margins::noise_at(value)};
    }
    [[nodiscard]] double nearest(variable x, double lower, double upper) const {
        return m_.is_integer(x) ? std::round(lower) : std::clamp(lower, m_.lower(x), std::max(m_.lower(x), upper));
    }

    /// Applies a reduction that removes a column.
    template <class Reduction>
    requires requires { typename Reduction::undo; }
    verdict apply(const Reduction& r) {
        undos_.emplace_back(std::in_place_type<typename Reduction::undo>, r.apply(m_));
        return verdict::applied;
    }

    verdict apply(const remove_row& r) {
        r.apply(m_);
        return verdict::applied;
    }
    verdict apply(const bound_row& b) {
        if (b.lower > b.upper + slack_.excess_at(b.lower) + m_.noise(b.at) + b.noise) return verdict::infeasible;
        // Sides that cross within the tolerance make the row an equation, whose side is off by up to half their
        // distance.
        const double middle = b.lower + (b.upper - b.lower) / 2.0;
        const double off = (b.lower - b.upper) / 2.0;
        const auto sides = b.lower > b.upper ? bound_row{b.at, middle, middle, b.noise + off} : b;
        if (m_.lower(b.at) == sides.lower && m_.upper(b.at) == sides.upper) {
            m_.add_noise(b.at, b.noise); // error of changed coefficients
            return verdict::unchanged;
        }
        sides.apply(m_);
        return verdict::applied;
    }
    template <class Reduction> verdict apply(const Reduction& r) {
        r.apply(m_);
        return verdict::applied;
    }
    static verdict apply(const give_up& g) { return g.why; }

    reducible m_;
    margins slack_;
    std::vector<undo> undos_;
    /// For each method, the time of its last run. Later changes are new to the method.
    std::map<std::string_view, std::uint32_t> seen_;
    bool is_infeasible_ = false;
};

} // namespace presolving
} // namespace optpipe::milp
