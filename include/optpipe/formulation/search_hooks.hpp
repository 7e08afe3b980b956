#pragma once

#include "optpipe/core/compiled.hpp"
#include "optpipe/core/quantity.hpp"
#include "optpipe/formulation/formulate.hpp"
#include "optpipe/formulation/operation_table.hpp"
#include "optpipe/milp/expression.hpp"
#include "optpipe/milp/model.hpp"
#include "optpipe/milp/search/hooks.hpp"
#include "optpipe/schedule/schedule.hpp"

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

namespace optpipe::formulation {

/// Hooks for the MILP solver (`milp/search/hooks.hpp`). The hooks provide branching priorities, a bound from the
/// structure of the problem, and a heuristic that uses a point of a relaxation as a priority list.
class search_hooks {
public:
    /// `bound` is a lower bound on the objective. `found` is called with schedules of the heuristic, from any thread.
    search_hooks(std::shared_ptr<const formulated> f, duration bound, std::function<void(const schedule&)> found = {})
        : f_{std::move(f)}, bound_{bound.value()}, found_{std::move(found)} {}

    [[nodiscard]] double objective_bound() const { return bound_; }
    /// Storage options and full backwards have the highest priority, followed by the order of computations, the order
    /// of transfers, and all other variables.
    [[nodiscard]] int branching_priority(milp::variable x) const;
    [[nodiscard]] std::optional<std::vector<double>> solution_near(std::span<const double> point) const;

private:
    std::shared_ptr<const formulated> f_;
    double bound_;
    std::function<void(const schedule&)> found_;
};
static_assert(milp::gives_priorities<search_hooks> && milp::gives_bound<search_hooks> &&
              milp::gives_heuristic<search_hooks>);

/// `search_hooks` with a schedule to start from.
class started_hooks : public search_hooks {
public:
    started_hooks(search_hooks hooks, std::vector<double> first)
        : search_hooks{std::move(hooks)}, first_{std::move(first)} {}
    [[nodiscard]] std::vector<double> first_solution() const { return first_; }

private:
    std::vector<double> first_;
};
static_assert(milp::gives_first_solution<started_hooks> && !milp::gives_first_solution<search_hooks>);

/// Separates triangle inequalities, the most violated first.
class triangle_hooks : public search_hooks {
public:
    triangle_hooks(std::shared_ptr<const formulated> f, duration bound, std::size_t most = 200);

    [[nodiscard]] std::vector<milp::constraint> cuts_at(std::span<const double> point) const;

private:
    struct arc {
        operation_id from;
        operation_id to;
        milp::variable column;
    };

    [[nodiscard]] static double value(const arc& a, std::span<const double> point) {
        return point[a.column.position()];
    }
    /// Visits all triples a, b, c of the rank's operations. A triple is visited as the three pairs ab, bc and ac. Each
    /// pair has an order variable, which is 1 if its first operation comes before its second.
    template <class Visit> void for_each_triangle(rank r, Visit visit) const {
        const auto& t = *f_->operations;
        for (const auto& ab : arcs_) {
            if (t.rank_of(ab.from) != r) continue;
            for (auto bc = first_from(ab.to); bc != arcs_.end() && bc->from == ab.to; ++bc)
                for (auto ac = first_from(ab.from); ac != arcs_.end() && ac->from == ab.from; ++ac)
                    if (ac->to == bc->to) visit(ab, *bc, *ac);
        }
    }
    [[nodiscard]] std::vector<arc>::const_iterator first_from(operation_id a) const {
        return std::find_if(arcs_.begin(), arcs_.end(), [&](const arc& x) { return x.from == a; });
    }

    std::shared_ptr<const formulated> f_;
    std::vector<arc> arcs_;
    std::size_t most_;
};
static_assert(milp::gives_cuts<triangle_hooks>);

} // namespace optpipe::formulation

#if OPTPIPE_DEFINES(formulation)
#include "optpipe/formulation/meaning.hpp"
#include "optpipe/formulation/priority_schedule.hpp"
#include "optpipe/formulation/schedule_of.hpp"
#include "optpipe/formulation/values_of.hpp"
#include "optpipe/milp/check.hpp"

#include <algorithm>
#include <cmath>

namespace optpipe::formulation {

OPTPIPE_INLINE int search_hooks::branching_priority(milp::variable x) const {
    using kind = meaning::kind;
    switch (f_->meanings[x.position()].what) {
    case kind::is_full:
    case kind::chosen: return 3;
    case kind::order: return 2;
    case kind::transfer_order: return 1;
    case kind::objective:
    case kind::first_start:
    case kind::end_time:
    case kind::is_before:
    case kind::excess:
    case kind::product: break;
    }
    return 0;
}

OPTPIPE_INLINE std::optional<std::vector<double>> search_hooks::solution_near(std::span<const double> point) const {
    auto wanted = times_of(*f_, point);
    if (f_->is_pooled) name_transfers(*f_->operations, wanted);
    const auto timed = priority_schedule(*f_->operations, wanted);
    if (!timed) return std::nullopt;
    if (found_) found_(*timed);
    auto values = values_of(*f_, *timed);
    if (!values || !milp::check(f_->model, *values).empty()) return std::nullopt;
    return *std::move(values);
}

OPTPIPE_INLINE triangle_hooks::triangle_hooks(std::shared_ptr<const formulated> f, duration bound, std::size_t most)
    : search_hooks{f, bound}, f_{std::move(f)}, most_{most} {
    for (std::size_t j = 0; j < f_->meanings.size(); ++j)
        if (const auto& m = f_->meanings[j]; m.what == meaning::kind::order)
            arcs_.push_back({m.op, m.other, milp::variable{j}});
}

OPTPIPE_INLINE std::vector<milp::constraint> triangle_hooks::cuts_at(std::span<const double> point) const {
    struct violated {
        double by;
        milp::constraint cut;
    };
    constexpr double least = 1e-3;
    std::vector<violated> found;
    const auto& t = *f_->operations;
    for (const rank r : t.problem().graph.all_ranks())
        for_each_triangle(r, [&](const arc& ab, const arc& bc, const arc& ac) {
            const double sum = value(ab, point) + value(bc, point) - value(ac, point);
            auto body = milp::expression{ab.column} + milp::expression{bc.column} - milp::expression{ac.column};
            if (sum > 1.0 + least) found.push_back({sum - 1.0, body <= 1.0});
            if (sum < -least) found.push_back({-sum, body >= 0.0});
        });
    std::stable_sort(found.begin(), found.end(), [](const auto& a, const auto& b) { return a.by > b.by; });
    std::vector<milp::constraint> cuts;
    for (std::size_t i = 0; i < std::min(most_, found.size()); ++i)
        cuts.push_back(std::move(found[i].cut));
    return cuts;
}

} // namespace optpipe::formulation
#endif
