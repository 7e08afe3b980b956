#pragma once

#include "optpipe/milp/search/context.hpp"
#include "optpipe/milp/search/tree/pseudocosts.hpp"
#include "optpipe/milp/search/tree/relaxation.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <optional>
#include <span>
#include <vector>

namespace optpipe::milp::search {

struct fractional {
    std::size_t column;
    double value;

    [[nodiscard]] double down() const { return value - std::floor(value); }
    [[nodiscard]] double up() const { return std::ceil(value) - value; }
};

/// The integer columns that are fractional at the point. If branching priorities differ, only the columns with the
/// highest priority are returned.
[[nodiscard]] inline std::vector<fractional> fractional_columns(const context& c, std::span<const double> point) {
    const auto& p = *c.instance;
    std::vector<fractional> found;
    int best = std::numeric_limits<int>::min();
    for (std::size_t j = 0; j < p.columns(); ++j) {
        if (!p.is_integer(j) || std::abs(point[j] - std::round(point[j])) <= p.tolerances.integrality) continue;
        const int priority = c.help.priorities.empty() ? 0 : c.help.priorities[j];
        if (priority < best) continue;
        if (priority > best) found.clear();
        best = priority;
        found.push_back({j, point[j]});
    }
    return found;
}

struct branching_choice {
    std::size_t column = 0;
    double value = 0.0;
    bool up_first = false;
};

/// Limits of `reliability_branching`. Not tuned.
struct branching_parameters {
    /// Number of observations in each direction that make a pseudocost reliable. With a smaller number, less time is
    /// spent at the top of the tree. Achterberg, Koch and Martin use 8.
    std::size_t reliable = 4;
    /// Largest number of columns that are tried at a node. Trials also end once `lookahead` consecutive columns aren't
    /// better than the best column.
    std::size_t most_tried = 40;
    std::size_t lookahead = 9;
    /// Number of simplex iterations per child. More iterations estimate the gain more precisely.
    std::size_t iterations_per_child = 60;
    /// The up child comes first unless rounding up moves the column farther by more than this distance. Increasing a
    /// column usually has more consequences than decreasing it.
    double up_margin = 0.2;
};

/// Reliability branching (Achterberg, Koch and Martin, 2005). Columns are compared by their pseudocosts. If a column's
/// pseudocosts aren't reliable, both children are tried with a few iterations. The most promising columns are tried
/// first.
class reliability_branching {
public:
    reliability_branching(const context& c, relaxation& lp, pseudocosts& history)
        : context_{&c}, lp_{lp}, history_{history} {}

    /// `bound` is the bound of the current relaxation. The call leaves the relaxation unchanged, but sets its basis
    /// again.
    branching_choice choose(std::vector<fractional> candidates, double bound, double cutoff,
                            std::vector<pseudocosts::observation>& news) {
        std::stable_sort(candidates.begin(), candidates.end(),
                         [&](const fractional& a, const fractional& b) { return expected(a) > expected(b); });
        std::optional<basis> start;
        fractional best = candidates.front();
        double best_score = -1.0;
        std::size_t without_progress = 0, tried = 0;
        for (const auto& f : candidates) {
            double score = expected(f);
            const bool reliable = history_.reliability(f.column) >= with_.reliable;
            if (!reliable && tried < with_.most_tried && !context_->limits->over()) {
                if (!start) start = lp_.solver().current_basis();
                ++tried;
                const auto gain = strong_branch(f, bound, cutoff, *start, news);
                if (gain.closed) return {f.column, f.value, gain.closed_up};
                score = pseudocosts::score(gain.down, gain.up);
            }
            if (score > best_score) {
                best_score = score;
                best = f;
                without_progress = 0;
            } else if (++without_progress >= with_.lookahead) {
                break;
            }
        }
        return {best.column, best.value, up_first(best)};
    }

private:
    static constexpr branching_parameters with_{};

    struct gains {
        double down = 0.0;
        double up = 0.0;
        bool closed = false;
        bool closed_up = false;
    };

    [[nodiscard]] double expected(const fractional& f) const {
        return pseudocosts::score(f.down() * history_.unit(f.column, false), f.up() * history_.unit(f.column, true));
    }
    /// Whether to search the up child first. The up child comes first unless rounding up moves the column farther by
    /// more than the margin.
    [[nodiscard]] static bool up_first(const fractional& f) { return f.up() <= f.down() + with_.up_margin; }

    gains strong_branch(const fractional& f, double bound, double cutoff, const basis& start,
                        std::vector<pseudocosts::observation>& news) {
        gains g;
        for (const bool up : {false, true}) {
            const double low = lp_.lower(f.column), high = lp_.upper(f.column);
            lp_.set_bounds(f.column, up ? std::ceil(f.value) : low, up ? high : std::floor(f.value));
            const auto status = lp_.solve(*context_->limits, cutoff, with_.iterations_per_child);
            const double reached = std::max(bound, lp_.bound());
            lp_.set_bounds(f.column, low, high);
            lp_.solver().set_basis(start);
            if (status == lp_status::infeasible || reached > cutoff) return {0.0, 0.0, true, up};
            (up ? g.up : g.down) = reached - bound;
            if (status != lp_status::optimal && status != lp_status::iteration_limit) continue;
            const pseudocosts::observation seen{f.column, up, up ? f.up() : f.down(), reached - bound};
            history_.add(seen);
            news.push_back(seen);
        }
        return g;
    }

    const context* context_;
    relaxation& lp_;
    pseudocosts& history_;
};

} // namespace optpipe::milp::search
