#pragma once

#include "optpipe/milp/bytes.hpp"
#include "optpipe/milp/search/cuts/cut.hpp"
#include "optpipe/milp/search/cuts/parameters.hpp"
#include "optpipe/milp/search/cuts/variable_bounds.hpp"
#include "optpipe/milp/search/propagation/propagator.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace optpipe::milp::search {

/// Probes binaries at the root. A value that leads to a contradiction is excluded. A bound implied by a binary's value
/// is kept as a cut `y <= u + (v - u) x`. A kept cut is used when a point violates it.
class implied_bounds {
public:
    /// Returns false if the problem has no feasible point.
    bool probe(propagator& engine, std::size_t effort) {
        const auto end = engine.row_visits() + effort;
        const auto& p = engine.model();
        for (std::size_t j = 0; j < p.columns() && engine.row_visits() < end; ++j)
            for (const bool one : {true, false}) {
                const auto& d = engine.bounds();
                if (!p.is_integer(j) || d.lower(j) != 0.0 || d.upper(j) != 1.0) break;
                if (!assume(engine, j, one)) return false;
            }
        return true;
    }
    [[nodiscard]] std::size_t bytes() const { return bytes_of_rows(found_); }

    void separate(std::span<const double> point, cut_pool& pool) const {
        for (const auto& c : found_) {
            if (c.violation(point) <= with_.least_violation) continue;
            auto copy = c;
            copy.measure(point);
            pool.add(std::move(copy));
        }
    }

    void add_to(variable_bounds& ends) const {
        for (const auto& c : found_)
            ends.add(c.entries, -infinity, c.limit);
    }

private:
    static constexpr cut_parameters with_{};

    bool assume(propagator& engine, std::size_t j, bool one) {
        const auto literal = one ? at_least(j, 1.0) : at_most(j, 0.0);
        engine.decide(literal);
        const bool possible = engine.propagate();
        if (possible) collect(engine, j, one);
        engine.back_to(0);
        return possible || (engine.imply_at_root(negation(literal)) && engine.propagate());
    }
    void collect(const propagator& engine, std::size_t j, bool one) {
        const auto& d = engine.bounds();
        for (auto i = d.start_of(1) + 1; i < d.changes() && found_.size() < with_.most_implied_bounds; ++i) {
            const auto b = d.at(i).bound;
            const auto y = column_of(b);
            const bool last = d.last_change(b) == i;
            const double root = d.at_root(b);
            if (!last || y == j || root == -infinity || !worthwhile(engine.model(), y)) continue;
            found_.push_back(cut_of(b, root, d[b], j, one));
        }
    }
    /// Only bounds of non-integer columns are kept, because rows imply most others.
    static bool worthwhile(const problem& p, std::size_t y) { return !p.is_integer(y); }
    /// The cut -y + (implied - root) x <= -root: y >= root, and y >= implied if x = 1. The variable y is the column of
    /// `b`, negated for an upper bound. The binary x is column `j`, or its complement if not `one`.
    static cut cut_of(bound_index b, double root, double implied, std::size_t j, bool one) {
        cut c;
        c.entries.push_back({static_cast<std::uint32_t>(column_of(b)), is_upper(b) ? 1.0 : -1.0});
        const double rise = implied - root;
        c.entries.push_back({static_cast<std::uint32_t>(j), one ? rise : -rise});
        c.limit = one ? -root : -implied;
        std::sort(c.entries.begin(), c.entries.end(),
                  [](const entry& a, const entry& e) { return a.column < e.column; });
        return c;
    }

    std::vector<cut> found_;
};

} // namespace optpipe::milp::search
