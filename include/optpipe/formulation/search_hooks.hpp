#pragma once

#include "optpipe/core/compiled.hpp"
#include "optpipe/core/quantity.hpp"
#include "optpipe/formulation/formulate.hpp"
#include "optpipe/formulation/operation_table.hpp"
#include "optpipe/milp/model.hpp"
#include "optpipe/milp/search/hooks.hpp"
#include "optpipe/schedule/schedule.hpp"

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

namespace optpipe::formulation {

/// Hooks for the MILP solver (`milp/search/hooks.hpp`). Provides branching priorities, a structural bound, and a
/// heuristic that schedules by the times of a relaxation.
class search_hooks {
public:
    /// `bound` is a lower bound on the objective. `found` is called with schedules of the heuristic, from any thread.
    search_hooks(std::shared_ptr<const formulated> f, duration bound, std::function<void(const schedule&)> found = {})
        : f_{std::move(f)}, bound_{bound.value()}, found_{std::move(found)} {}

    [[nodiscard]] double objective_bound() const { return bound_; }
    /// Highest first: storage options and full backwards, orders of computations, orders of transfers, all other
    /// variables.
    [[nodiscard]] int branching_priority(milp::variable x) const;
    [[nodiscard]] std::optional<std::vector<double>> solution_near(std::span<const double> point) const;

private:
    std::shared_ptr<const formulated> f_;
    double bound_;
    std::function<void(const schedule&)> found_;
};
static_assert(milp::gives_priorities<search_hooks> && milp::gives_bound<search_hooks> &&
              milp::gives_heuristic<search_hooks>);

} // namespace optpipe::formulation

#if OPTPIPE_DEFINES(formulation)
#include "optpipe/formulation/meaning.hpp"
#include "optpipe/formulation/priority_schedule.hpp"
#include "optpipe/formulation/schedule_of.hpp"
#include "optpipe/formulation/values_of.hpp"
#include "optpipe/milp/check.hpp"


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

} // namespace optpipe::formulation
#endif
