#pragma once

#include "optpipe/milp/presolve/parameters.hpp"
#include "optpipe/milp/presolve/reducible.hpp"
#include "optpipe/milp/presolve/reductions.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

namespace optpipe::milp::presolving {

/// A row that allows at most one of its literals to be true. A literal is a binary x or its complement 1 - x.
struct clique_row {
    row at;
    bool is_equation = false;          ///< whether exactly one of the literals is true
    double unit = 1.0;                 ///< the coefficient of a literal; negative if the lower side bounds the row
    std::vector<std::size_t> literals; ///< numbers of the literals, sorted: 2 x stands for x, and 2 x + 1 for 1 - x
};

/// Adds literals that exclude all members of a clique, if other rows become redundant. A literal that excludes all
/// members of an equation is false.
class clique_merging {
public:
    static constexpr std::string_view name = "clique merging";

    void operator()(const reducible& m, std::uint32_t since, const margins& slack, proposal_list& found) const {
        const clique_table table{m, slack};
        std::size_t work = 0;
        for (const auto& clique : table.cliques())
            if (m.has_changed(clique.at, since) && work < parameters.clique_work) extend(table, clique, work, found);
    }

private:
    class clique_table {
    public:
        clique_table(const reducible& m, const margins& slack) : of_literal_(2 * m.all_variables().size()) {
            for (const row r : m.all_rows())
                if (m.has(r) && m.terms(r).size() >= 2) add(m, r, slack);
        }
        [[nodiscard]] const std::vector<clique_row>& cliques() const { return cliques_; }
        /// A literal's cliques, as indices into `cliques()`.
        [[nodiscard]] const std::vector<std::size_t>& with(std::size_t literal) const { return of_literal_[literal]; }

        [[nodiscard]] bool exclude(std::size_t a, std::size_t b, std::size_t& work) const {
            if (a / 2 == b / 2) return a != b;
            return std::any_of(with(a).begin(), with(a).end(), [&](std::size_t i) {
                ++work;
                return std::binary_search(cliques_[i].literals.begin(), cliques_[i].literals.end(), b);
            });
        }

    private:
        void add(const reducible& m, row r, const margins& slack) {
            const double size = std::abs(m.terms(r).front().coefficient);
            for (const auto& t : m.terms(r))
                if (!m.is_binary(t.column) || std::abs(t.coefficient) != size) return;
            for (const double unit : {size, -size}) {
                const double side = unit > 0.0 ? m.upper(r) : m.lower(r);
                if (!std::isfinite(side)) continue;
                clique_row clique{r, m.is_equation(r), unit, {}};
                double capacity = side / unit;
                for (const auto& t : m.terms(r)) {
                    const bool is_negated = (t.coefficient > 0.0) != (unit > 0.0);
                    clique.literals.push_back(2 * t.column.position() + (is_negated ? 1 : 0));
                    capacity += is_negated ? 1.0 : 0.0;
                }
                if (slack.feasible.rounded_down(capacity) != 1.0) continue;
                for (const auto literal : clique.literals)
                    of_literal_[literal].push_back(cliques_.size());
                return cliques_.push_back(std::move(clique));
            }
        }

        std::vector<clique_row> cliques_;
        std::vector<std::vector<std::size_t>> of_literal_;
    };

    static void extend(const clique_table& table, const clique_row& clique, std::size_t& work, proposal_list& found) {
        if (clique.literals.size() > parameters.largest_clique) return;
        auto members = clique.literals;
        for (const auto candidate : neighbours(table, clique, work)) {
            const bool joins = std::all_of(members.begin(), members.end(),
                                           [&](std::size_t member) { return table.exclude(candidate, member, work); });
            if (!joins) continue;
            // A row can't hold a literal and its complement, which share a variable.
            const bool has_complement = std::find(members.begin(), members.end(), candidate ^ 1U) != members.end();
            if (clique.is_equation)
                found.add({{falsify(candidate)}, {clique.at}, {}});
            else if (members.size() < parameters.largest_clique && !has_complement)
                members.push_back(candidate);
        }
        if (members.size() > clique.literals.size()) propose(table, clique, members, found);
    }

    static bound_column falsify(std::size_t literal) {
        const double value = literal % 2 == 0 ? 0.0 : 1.0;
        return {variable{literal / 2}, value, value};
    }

    /// The literals that share a clique with one chosen member of `clique`. The member whose cliques have the fewest
    /// literals in total is chosen. The result is sorted, and contains no member of `clique`.
    static std::vector<std::size_t> neighbours(const clique_table& table, const clique_row& clique, std::size_t& work) {
        const auto reach = [&](std::size_t literal) {
            std::size_t sum = 0;
            for (const auto i : table.with(literal))
                sum += table.cliques()[i].literals.size();
            return sum;
        };
        const auto lonely = *std::min_element(clique.literals.begin(), clique.literals.end(),
                                              [&](std::size_t a, std::size_t b) { return reach(a) < reach(b); });
        std::vector<std::size_t> found;
        for (const auto i : table.with(lonely))
            for (const auto literal : table.cliques()[i].literals)
                if (!std::binary_search(clique.literals.begin(), clique.literals.end(), literal))
                    found.push_back(literal);
        work += found.size();
        std::sort(found.begin(), found.end());
        found.erase(std::unique(found.begin(), found.end()), found.end());
        return found;
    }

    /// Proposes the larger clique `members` if it contains all literals of another row.
    static void propose(const clique_table& table, const clique_row& clique, const std::vector<std::size_t>& members,
                        proposal_list& found) {
        std::unordered_map<std::size_t, std::size_t> shared;
        for (const auto literal : members)
            for (const auto i : table.with(literal))
                ++shared[i];
        proposal p{{}, {clique.at}, {}};
        std::vector<std::size_t> redundant;
        for (const auto& [i, count] : shared) {
            const auto& other = table.cliques()[i];
            if (count == other.literals.size() && other.at != clique.at && !other.is_equation) redundant.push_back(i);
        }
        if (redundant.empty()) return;
        std::sort(redundant.begin(), redundant.end());
        add_literals(clique, members, p);
        for (const auto i : redundant) {
            p.steps.push_back(remove_row{table.cliques()[i].at});
            p.rows.push_back(table.cliques()[i].at);
        }
        found.add(std::move(p));
    }

    static void add_literals(const clique_row& clique, const std::vector<std::size_t>& members, proposal& p) {
        double capacity = 1.0;
        for (std::size_t k = 0; k < members.size(); ++k) {
            const bool is_negated = members[k] % 2 == 1;
            capacity -= is_negated ? 1.0 : 0.0;
            if (k < clique.literals.size()) continue;
            p.steps.push_back(
                set_coefficient{clique.at, variable{members[k] / 2}, is_negated ? -clique.unit : clique.unit});
            p.columns.push_back(variable{members[k] / 2});
        }
        const double side = clique.unit * capacity;
        p.steps.push_back(clique.unit > 0.0 ? bound_row{clique.at, -infinity, side}
                                            : bound_row{clique.at, side, infinity});
    }
};

} // namespace optpipe::milp::presolving
