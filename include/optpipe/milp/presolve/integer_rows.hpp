#pragma once

#include "optpipe/milp/feasibility.hpp"
#include "optpipe/milp/presolve/parameters.hpp"
#include "optpipe/milp/presolve/reducible.hpp"
#include "optpipe/milp/presolve/reductions.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <numeric>
#include <string_view>
#include <vector>

namespace optpipe::milp::presolving {

/// Rounds the sides of integer rows to multiples of the coefficients' common divisor. An equation is infeasible if no
/// integer values give its right-hand side. For each column, only the bound with the least activity matters.
struct integer_rows {
    static constexpr std::string_view name = "integer rows";

    void operator()(const reducible& m, std::uint32_t since, const margins& slack, proposal_list& found) const {
        for (const row r : m.all_rows()) {
            if (!m.has(r) || !m.has_changed(r, since) || m.terms(r).empty()) continue;
            const double divisor = common_divisor(m, r, slack);
            if (divisor == 0.0) continue;
            const double error = error_of_multiples(m, r, divisor);
            if (!slack.is_negligible(error / divisor)) continue;
            const double off = slack.grace(m.lower(r), m.upper(r), divisor, m.noise(r) / divisor) + error / divisor;
            const double lower = divisor * margins::rounded_up(m.lower(r) / divisor, off);
            const double upper = divisor * margins::rounded_down(m.upper(r) / divisor, off);
            if (lower > upper || (lower == upper && is_unreachable(m, r, lower, divisor)))
                found.add({{give_up{verdict::infeasible}}, {r}, {}});
            else if (lower > m.lower(r) + slack.excess_at(lower) || upper < m.upper(r) - slack.excess_at(upper))
                found.add({{bound_row{r, lower, upper, error}}, {r}, {}});
        }
    }

private:
    static constexpr auto unreached = std::numeric_limits<std::int64_t>::max();

    /// Whether integer values can't give the row the sum `sum`. For each column, only the bound with the least activity
    /// matters.
    static bool is_unreachable(const reducible& m, row r, double sum, double divisor) {
        std::vector<std::int64_t> weights;
        double left = sum / divisor;
        double size = std::abs(left);
        for (const auto& t : m.terms(r)) {
            const double weight = std::round(t.coefficient / divisor);
            const double bound = weight > 0.0 ? m.lower(t.column) : m.upper(t.column);
            if (!std::isfinite(bound) || !milp::is_integral(bound)) return false;
            left -= weight * bound;
            size += std::abs(weight * bound);
            weights.push_back(std::llround(std::abs(weight)));
        }
        if (!milp::is_integral(left) || size >= largest_exact_integer || left < 0.0) return false;
        return is_beyond_all_sums(weights, std::llround(left));
    }
    /// Whether no sum of multiples of the weights equals `sum`. Sums are grouped by their residue modulo the least
    /// weight. For each residue, only the least sum matters. The least sums are found round by round (Böcker and
    /// Lipták, 2007). Every sum >= least weight * largest weight can be reached, because the weights have no common
    /// divisor (Brauer, 1942).
    static bool is_beyond_all_sums(const std::vector<std::int64_t>& weights, std::int64_t sum) {
        const auto [first, last] = std::minmax_element(weights.begin(), weights.end());
        const auto modulus = *first;
        if (modulus == 1 || sum >= modulus * *last) return false;
        if (modulus * static_cast<std::int64_t>(weights.size()) > parameters.residue_work) return false;
        std::vector<std::int64_t> least(static_cast<std::size_t>(modulus), unreached);
        least[0] = 0;
        for (const auto weight : weights)
            add_weight(least, modulus, weight);
        return least[static_cast<std::size_t>(sum % modulus)] > sum;
    }
    static void add_weight(std::vector<std::int64_t>& least, std::int64_t modulus, std::int64_t weight) {
        const auto cycles = std::gcd(modulus, weight);
        for (std::int64_t first = 0; first < cycles; ++first) {
            auto smallest = unreached;
            for (auto at = first; at < modulus; at += cycles)
                smallest = std::min(smallest, least[static_cast<std::size_t>(at)]);
            if (smallest == unreached) continue;
            for (auto step = modulus / cycles; step > 0; --step) {
                auto& here = least[static_cast<std::size_t>(smallest % modulus)];
                here = std::min(here, smallest);
                smallest = here + weight;
            }
        }
    }
    /// A common divisor of the row's coefficients; 0 if a column isn't integral or no unit fits.
    static double common_divisor(const reducible& m, row r, const margins& slack) {
        constexpr double tenth = 0.1;
        constexpr double hundredth = 0.01;
        double least = infinity;
        for (const auto& t : m.terms(r)) {
            if (!m.is_integer(t.column)) return 0.0;
            least = std::min(least, std::abs(t.coefficient));
        }
        for (const double unit : {1.0, least, least / 2.0, 0.5, tenth, hundredth}) {
            std::int64_t divisor = 0;
            bool is_multiple = true;
            for (const auto& t : m.terms(r)) {
                const double multiple = std::abs(t.coefficient) / unit;
                is_multiple = is_multiple && multiple < parameters.largest_multiple && slack.is_integral(multiple) &&
                              multiple > 0.5;
                if (!is_multiple) break;
                divisor = std::gcd(divisor, static_cast<std::int64_t>(std::llround(multiple)));
            }
            if (is_multiple) return unit * static_cast<double>(divisor);
        }
        return 0.0;
    }
};

} // namespace optpipe::milp::presolving
