#pragma once

#include "optpipe/milp/bytes.hpp"
#include "optpipe/milp/search/cuts/parameters.hpp"
#include "optpipe/milp/search/cuts/rounding.hpp"
#include "optpipe/milp/search/cuts/variable_bounds.hpp"
#include "optpipe/milp/search/problem.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <utility>
#include <vector>

namespace optpipe::milp::search {

/// Cut-set inequalities (Magnanti, Mirchandani and Vachani, 1995) of networks hidden in the rows. The networks are
/// found as by Achterberg and Raack (2010). A cut-set inequality requires that enough arcs are open for the flow into a
/// set of nodes. Each row is a node of a network. A non-integer column in two rows is an arc from its negative to its
/// positive scaled coefficient. A non-integer column in a single row connects that row with the outside. The first cut
/// of a node with a demand is a minimum cut of the capacities open at the point. Opening a cut's arcs leads to the next
/// cut (nested cuts and creep flow, Koch and Martin, 1998). Each cut sums and rounds the rows of the nodes behind it.
class cut_sets {
public:
    explicit cut_sets(const problem& p)
        : problem_{p}, scale_(p.rows(), 0.0), demand_(p.rows(), 0.0), around_(p.rows() + 1), behind_(p.rows() + 1, 0),
          next_(p.rows() + 1) {
        const auto occurrences = find_occurrences();
        scale_rows(occurrences);
        for (std::uint32_t j = 0; j < occurrences.size(); ++j)
            add_arc(j, occurrences[j]);
        for (std::size_t i = 0; i < p.rows(); ++i)
            demand_[i] = demand_of(i);
    }

    void separate(mixed_integer_rounding& rounding, const variable_bounds& ends, std::span<const double> point,
                  cut_pool& pool) {
        if (arcs_.empty()) return;
        find_openings(ends, point);
        effort_ = 0;
        const auto first = next_target_;
        for (std::size_t k = 0; k < demand_.size() && effort_ < with_.cut_set_effort; ++k) {
            const auto i = static_cast<std::uint32_t>((first + k) % demand_.size());
            next_target_ = i;
            if (demand_[i] <= problem_.tolerances.feasibility || around_[i].empty()) continue;
            find_cuts(i, rounding, point, pool);
        }
    }
    [[nodiscard]] std::size_t bytes() const { return bytes_of(scale_, demand_, arcs_) + bytes_of_lists(around_); }

private:
    static constexpr cut_parameters with_{};

    struct occurrence {
        std::uint32_t row;
        double coefficient;
    };
    struct arc {
        std::uint32_t column;
        std::uint32_t tail;
        std::uint32_t head;
    };
    /// An arc along which flow can be sent towards another node, forwards or backwards.
    struct step {
        std::uint32_t arc;
        bool back;
    };

    [[nodiscard]] std::uint32_t outside() const { return static_cast<std::uint32_t>(problem_.rows()); }
    [[nodiscard]] std::vector<std::vector<occurrence>> find_occurrences() const {
        std::vector<std::vector<occurrence>> all(problem_.columns());
        for (std::uint32_t i = 0; i < problem_.rows(); ++i) {
            const auto terms = problem_.row_entries(i);
            if (terms.size() == 2 && problem_.is_integer(terms[0].column) != problem_.is_integer(terms[1].column))
                continue;
            for (const auto& e : terms)
                if (!problem_.is_integer(e.column)) all[e.column].push_back({i, e.coefficient});
        }
        return all;
    }
    /// Scales rows so that adding two rows cancels their common columns, if possible.
    void scale_rows(const std::vector<std::vector<occurrence>>& occurrences) {
        std::vector<std::vector<std::uint32_t>> columns_of(problem_.rows());
        for (std::uint32_t j = 0; j < occurrences.size(); ++j)
            if (occurrences[j].size() == 2)
                for (const auto& o : occurrences[j])
                    columns_of[o.row].push_back(j);
        for (std::uint32_t first = 0; first < problem_.rows(); ++first) {
            if (scale_[first] != 0.0) continue;
            std::vector<std::uint32_t> component{first};
            scale_[first] = 1.0;
            for (std::size_t k = 0; k < component.size(); ++k)
                for (const auto j : columns_of[component[k]]) {
                    const bool second = occurrences[j][0].row != component[k];
                    const auto &own = occurrences[j][second ? 1 : 0], &other = occurrences[j][second ? 0 : 1];
                    if (scale_[other.row] != 0.0) continue;
                    scale_[other.row] = -scale_[own.row] * own.coefficient / other.coefficient;
                    component.push_back(other.row);
                }
            orient(component);
        }
    }
    /// Chooses a component's sign so that at most half of its nodes with demands are sources.
    void orient(std::span<const std::uint32_t> component) {
        std::ptrdiff_t surplus = 0;
        for (const auto v : component)
            surplus += demand_of(v) > 0.0 ? 1 : demand_of(v) < 0.0 ? -1 : 0;
        if (surplus < 0)
            for (const auto v : component)
                scale_[v] = -scale_[v];
    }
    /// The flow that must enter node i. The flow is a side of the node's scaled row. Negative if flow may leave the
    /// node.
    [[nodiscard]] double demand_of(std::size_t i) const {
        const double side = scale_[i] > 0.0 ? problem_.row_lower[i] : problem_.row_upper[i];
        return std::isfinite(side) ? scale_[i] * side : -1.0;
    }
    void add_arc(std::uint32_t j, std::span<const occurrence> rows) {
        if (rows.empty() || rows.size() > 2) return;
        const double first = scale_[rows[0].row] * rows[0].coefficient;
        const auto other = rows.size() == 2 ? rows[1].row : outside();
        if (rows.size() == 2) {
            const double second = scale_[other] * rows[1].coefficient;
            if (std::abs(first + second) > problem_.tolerances.zero * std::abs(first)) return;
        }
        const bool enters = first > 0.0;
        arcs_.push_back({j, enters ? other : rows[0].row, enters ? rows[0].row : other});
        for (const auto v : {rows[0].row, other})
            around_[v].push_back(static_cast<std::uint32_t>(arcs_.size() - 1));
    }

    /// Computes how far each arc's integer variable is from the value that closes the arc. The distance is negative if
    /// no integer variable opens the arc.
    void find_openings(const variable_bounds& ends, std::span<const double> point) {
        opening_.assign(arcs_.size(), -1.0);
        for (std::size_t k = 0; k < arcs_.size(); ++k) {
            const auto* end = ends.least_upper(arcs_[k].column, point);
            if (end && end->coefficient != 0.0)
                opening_[k] = std::max(0.0, end->at(point) / std::abs(end->coefficient));
        }
    }
    void find_cuts(std::uint32_t target, mixed_integer_rounding& rounding, std::span<const double> point,
                   cut_pool& pool) {
        start_flow(target, point);
        while (effort_ < with_.cut_set_effort && find_least_cut(target)) {
            rows_.clear();
            for (const auto v : queue_)
                rows_.push_back({v, scale_[v]});
            const auto before = rounding.effort();
            if (auto found = rounding.separate(rows_, point, bound_choice::relaxing)) pool.add(std::move(*found));
            effort_ += rounding.effort() - before;
            if (!open_cut()) return;
        }
    }
    /// Starts with zero flow. Capacities are expressed as multiples of the target's demand.
    void start_flow(std::uint32_t target, std::span<const double> point) {
        effort_ += arcs_.size();
        capacity_.assign(2 * arcs_.size(), 0.0);
        for (std::size_t k = 0; k < arcs_.size(); ++k)
            capacity_[2 * k] =
                with_.creep +
                (opening_[k] >= 0.0 ? opening_[k] : std::max(0.0, point[arcs_[k].column] / demand_[target]));
        flow_ = 0.0;
    }
    /// Sends flow to the target until the arcs of a cut are full. Flow comes from the outside, and from all nodes that
    /// flow may leave. Returns false if the share `enough_flow` of the demand reaches the target. After the call,
    /// `queue_` has the nodes from which the target can still be reached.
    bool find_least_cut(std::uint32_t target) {
        while (flow_ < with_.enough_flow) {
            const auto source = search_back(target);
            if (source == none) return true;
            flow_ += send(source, target);
        }
        return false;
    }
    /// Opens the arcs that lead from other nodes to the nodes in `queue_`. Returns false if no arc leads to `queue_`.
    bool open_cut() {
        bool opened = false;
        for (const auto v : queue_)
            for (const auto a : around_[v]) {
                if (arcs_[a].head != v || behind_[arcs_[a].tail] != 0) continue;
                capacity_[2 * a] += 1.0;
                opened = true;
            }
        return opened;
    }
    /// A source from which the target can be reached, or `none`.
    std::uint32_t search_back(std::uint32_t target) {
        for (const auto v : queue_)
            behind_[v] = 0;
        queue_.assign(1, target);
        behind_[target] = 1;
        for (std::size_t k = 0; k < queue_.size(); ++k) {
            const auto v = queue_[k];
            if (v == outside() || demand_[v] < 0.0) return v;
            effort_ += around_[v].size();
            for (const auto a : around_[v]) {
                const bool back = arcs_[a].tail == v;
                const auto from = back ? arcs_[a].head : arcs_[a].tail;
                if (behind_[from] != 0 || capacity_[2 * a + (back ? 1 : 0)] <= problem_.tolerances.feasibility)
                    continue;
                behind_[from] = 1;
                next_[from] = {a, back};
                queue_.push_back(from);
            }
        }
        return none;
    }
    double send(std::uint32_t source, std::uint32_t target) {
        const auto follow = [&](auto visit) {
            for (auto v = source; v != target; v = next_[v].back ? arcs_[next_[v].arc].tail : arcs_[next_[v].arc].head)
                visit(2 * next_[v].arc + (next_[v].back ? 1U : 0U));
        };
        double least = infinity;
        follow([&](std::size_t k) { least = std::min(least, capacity_[k]); });
        follow([&](std::size_t k) {
            capacity_[k] -= least;
            capacity_[k ^ 1U] += least;
        });
        return least;
    }

    static constexpr std::uint32_t none = std::numeric_limits<std::uint32_t>::max();

    const problem& problem_;
    std::vector<double> scale_, demand_; ///< per row
    std::vector<arc> arcs_;
    std::vector<std::vector<std::uint32_t>> around_; ///< arcs of each row, and of the outside
    std::vector<double> opening_;
    std::vector<double> capacity_;      ///< remaining capacity of each arc, forwards and back
    double flow_ = 0.0;                 ///< flow that reaches the target
    std::vector<unsigned char> behind_; ///< whether the node is in `queue_`
    std::vector<step> next_;            ///< the step from each node in `queue_` towards the target
    std::vector<std::uint32_t> queue_;
    std::vector<row_multiplier> rows_;
    std::size_t next_target_ = 0;
    std::size_t effort_ = 0;
};

} // namespace optpipe::milp::search
