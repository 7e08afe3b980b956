#pragma once

#include "optpipe/milp/bytes.hpp"
#include "optpipe/milp/search/cuts/cut.hpp"
#include "optpipe/milp/search/cuts/parameters.hpp"
#include "optpipe/milp/search/problem.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace optpipe::milp::search {

/// Sets of binaries and their complements, found in single rows. At most one member of a set is 1. Member 2 j is column
/// j, and member 2 j + 1 is the complement of column j.
class clique_table {
public:
    using member = std::uint32_t;

    clique_table(const problem& p, std::span<const double> lower, std::span<const double> upper)
        : cliques_of_(2 * p.columns()) {
        for (std::size_t i = 0; i < p.rows(); ++i) {
            if (p.row_upper[i] < infinity) add_row(p, i, 1.0, p.row_upper[i], lower, upper);
            if (p.row_lower[i] > -infinity) add_row(p, i, -1.0, -p.row_lower[i], lower, upper);
        }
    }

    [[nodiscard]] std::size_t bytes() const { return bytes_of_lists(cliques_) + bytes_of_lists(cliques_of_); }
    [[nodiscard]] std::span<const std::uint32_t> cliques_of(member m) const { return cliques_of_[m]; }
    /// Visits all members that can't be 1 together with `m`.
    template <class Visit> void for_each_neighbour(member m, Visit visit) const {
        for (const auto k : cliques_of_[m])
            for (const auto other : cliques_[k])
                if (other != m) visit(other);
    }

private:
    /// Adds the clique of a knapsack row. Any two items of the clique together exceed the limit.
    void add_row(const problem& p, std::size_t i, double sign, double limit, std::span<const double> lower,
                 std::span<const double> upper) {
        std::vector<std::pair<double, member>> items;
        for (const auto& e : p.row_entries(i)) {
            const double a = sign * e.coefficient;
            const bool binary = p.is_integer(e.column) && lower[e.column] == 0.0 && upper[e.column] == 1.0;
            const double bound = a > 0.0 ? lower[e.column] : upper[e.column];
            if (!std::isfinite(bound)) return;
            limit -= a * bound;
            if (binary) items.emplace_back(std::abs(a), 2 * e.column + (a < 0.0 ? 1U : 0U));
        }
        std::sort(items.begin(), items.end(), [](const auto& a, const auto& b) { return a.first > b.first; });
        std::size_t count = items.empty() ? 0 : 1;
        while (count < items.size() && items[count - 1].first + items[count].first > limit + p.tolerances.slack(limit))
            ++count;
        if (count < 2) return;
        std::vector<member> members;
        for (std::size_t k = 0; k < count; ++k)
            members.push_back(items[k].second);
        for (const auto m : members)
            cliques_of_[m].push_back(static_cast<std::uint32_t>(cliques_.size()));
        cliques_.push_back(std::move(members));
    }

    std::vector<std::vector<member>> cliques_;
    std::vector<std::vector<std::uint32_t>> cliques_of_;
};

/// Separates clique cuts. Grows a set of pairwise exclusive members greedily from each fractional member.
class clique_separation {
public:
    clique_separation(const problem& p, const clique_table& t) : problem_{p}, table_{t}, shared_(2 * p.columns(), 0) {}

    void separate(std::span<const double> point, cut_pool& pool) {
        std::vector<std::pair<double, clique_table::member>> starts;
        for (std::size_t j = 0; j < problem_.columns(); ++j) {
            if (std::abs(point[j] - std::round(point[j])) <= problem_.tolerances.integrality) continue;
            for (const bool flipped : {false, true}) {
                const auto m = static_cast<clique_table::member>(2 * j + (flipped ? 1 : 0));
                if (!table_.cliques_of(m).empty()) starts.emplace_back(-value(m, point), m);
            }
        }
        std::sort(starts.begin(), starts.end());
        starts.resize(std::min(starts.size(), with_.most_clique_starts));
        for (const auto& s : starts)
            grow(s.second, point, pool);
    }

private:
    static constexpr cut_parameters with_{};

    [[nodiscard]] static double value(clique_table::member m, std::span<const double> point) {
        return (m & 1U) != 0 ? 1.0 - point[m >> 1U] : point[m >> 1U];
    }
    void grow(clique_table::member start, std::span<const double> point, cut_pool& pool) {
        std::vector<std::pair<double, clique_table::member>> candidates;
        mark(start);
        for (const auto m : marked_)
            if (value(m, point) > problem_.tolerances.feasibility) candidates.emplace_back(-value(m, point), m);
        std::sort(candidates.begin(), candidates.end());
        std::vector<clique_table::member> chosen{start};
        for (const auto& [unused, m] : candidates) {
            if (shared_[m] != chosen.size()) continue;
            mark(m, static_cast<std::uint32_t>(chosen.size()));
            chosen.push_back(m);
        }
        for (const auto m : marked_)
            shared_[m] = 0;
        marked_.clear();
        cut c;
        c.limit = 1.0;
        for (const auto m : chosen) {
            const bool flipped = (m & 1U) != 0;
            c.entries.push_back({m >> 1U, flipped ? -1.0 : 1.0});
            if (flipped) c.limit -= 1.0;
        }
        std::sort(c.entries.begin(), c.entries.end(),
                  [](const entry& a, const entry& b) { return a.column < b.column; });
        c.measure(point);
        if (c.efficacy > problem_.tolerances.feasibility) pool.add(std::move(c));
    }
    /// Called when `m` is chosen after `count` other members. Increases the counters of the neighbours that all chosen
    /// members share.
    void mark(clique_table::member m, std::uint32_t count = 0) {
        table_.for_each_neighbour(m, [&](clique_table::member other) {
            if (count == 0 && shared_[other] == 0) marked_.push_back(other);
            if (shared_[other] == count) ++shared_[other];
        });
    }

    const problem& problem_;
    const clique_table& table_;
    std::vector<std::uint32_t> shared_;
    std::vector<clique_table::member> marked_;
};

} // namespace optpipe::milp::search
