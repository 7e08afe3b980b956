#pragma once

#include "optpipe/milp/search/context.hpp"
#include "optpipe/milp/search/cuts/cut.hpp"

#include <algorithm>
#include <cstddef>
#include <span>
#include <utility>
#include <vector>

namespace optpipe::milp::search {

/// The cuts of the user's hook, one per finite side of its rows.
class user_separation {
public:
    explicit user_separation(const context& c) : context_{&c} {}

    void separate(std::span<const double> point, cut_pool& pool) const {
        if (!context_->help.cuts_at) return;
        for (const auto& r : context_->help.cuts_at(point)) {
            if (r.upper < infinity) add(r.entries, 1.0, r.upper, point, pool);
            if (r.lower > -infinity) add(r.entries, -1.0, -r.lower, point, pool);
        }
    }

private:
    static void add(const std::vector<entry>& entries, double sign, double limit, std::span<const double> point,
                    cut_pool& pool) {
        cut c;
        c.limit = limit;
        for (const auto& e : entries)
            c.entries.push_back({e.column, sign * e.coefficient});
        add_up(c.entries);
        c.measure(point);
        pool.add(std::move(c));
    }
    /// Sorts entries by column, and sums the entries of the same column.
    static void add_up(std::vector<entry>& entries) {
        if (entries.empty()) return;
        std::sort(entries.begin(), entries.end(), [](const entry& a, const entry& b) { return a.column < b.column; });
        std::size_t kept = 0;
        for (std::size_t k = 1; k < entries.size(); ++k)
            if (entries[k].column == entries[kept].column)
                entries[kept].coefficient += entries[k].coefficient;
            else
                entries[++kept] = entries[k];
        entries.resize(kept + 1);
    }

    const context* context_;
};

} // namespace optpipe::milp::search
