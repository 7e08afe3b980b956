#pragma once

#include "optpipe/milp/bytes.hpp"
#include "optpipe/milp/search/problem.hpp"
#include "optpipe/milp/search/propagation/literal.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace optpipe::milp::search {

/// The disjunctive structure of a scheduling model: binaries that each order two columns. The binaries are found in
/// big-M rows `later - earlier + (binaries) >= distance`. A big-M row is redundant at one value of its binary.
class disjunctive_structure {
public:
    explicit disjunctive_structure(const problem& p) : decisions_(p.columns()) {
        std::vector<pair> pairs(p.columns());
        for (std::size_t i = 0; i < p.rows(); ++i) {
            if (p.row_entries(i).size() > most_binaries + 2) continue;
            look_at(p, p.row_entries(i), 1.0, p.row_lower[i], pairs);
            look_at(p, p.row_entries(i), -1.0, -p.row_upper[i], pairs);
        }
        for (std::size_t x = 0; x < p.columns(); ++x)
            if (pairs[x].use == usage::orders) adopt(x, pairs[x]);
        for (std::size_t j = 0; j < p.columns(); ++j)
            if (!decisions_[j].empty()) start_columns_.push_back(static_cast<std::uint32_t>(j));
    }

    /// The columns that the binaries order, such as start times of jobs.
    [[nodiscard]] std::span<const std::uint32_t> start_columns() const { return start_columns_; }
    /// The literals that put column `j` before all columns that it may precede.
    [[nodiscard]] std::span<const literal> decisions(std::size_t j) const { return decisions_[j]; }
    [[nodiscard]] std::size_t bytes() const { return bytes_of(start_columns_) + bytes_of_lists(decisions_); }

private:
    static constexpr std::size_t most_binaries = 3;

    enum class usage : unsigned char { none, orders, other };
    /// The pair of columns that a binary orders. At 1, the binary puts `first` before `second`; at 0, after `second`.
    struct pair {
        std::uint32_t first = 0, second = 0;
        usage use = usage::none;
    };

    /// Examines one side of a row: sign · entries >= side.
    static void look_at(const problem& p, std::span<const entry> entries, double sign, double side,
                        std::vector<pair>& pairs) {
        if (side == -infinity) return;
        std::optional<std::uint32_t> later, earlier;
        double least = 0.0;
        for (const auto& e : entries) {
            const double c = sign * e.coefficient;
            least += c * (c > 0.0 ? p.lower[e.column] : p.upper[e.column]);
            if (p.is_binary(e.column)) continue;
            auto& place = c > 0.0 ? later : earlier;
            if (place) return;
            place = e.column;
        }
        if (!later || !earlier || !std::isfinite(least)) return;
        for (const auto& e : entries) {
            const bool switches = least + std::abs(e.coefficient) >= side - p.tolerances.slack(side);
            if (!p.is_binary(e.column) || !switches) continue;
            const bool at_one = sign * e.coefficient < 0.0;
            note(pairs[e.column], at_one ? *earlier : *later, at_one ? *later : *earlier);
        }
    }
    /// Notes the pair that a binary orders. Ignores a binary that orders two pairs, or one pair in both directions at
    /// once.
    static void note(pair& known, std::uint32_t first, std::uint32_t second) {
        if (known.use == usage::none)
            known = {first, second, usage::orders};
        else if (known.first != first || known.second != second)
            known.use = usage::other;
    }
    void adopt(std::size_t x, const pair& ordered) {
        decisions_[ordered.first].push_back(at_least(x, 1.0));
        decisions_[ordered.second].push_back(at_most(x, 0.0));
    }

    std::vector<std::vector<literal>> decisions_;
    std::vector<std::uint32_t> start_columns_;
};

} // namespace optpipe::milp::search
