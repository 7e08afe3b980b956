#pragma once

#include "optpipe/core/compiled.hpp"
#include "optpipe/core/outcome.hpp"
#include "optpipe/formulation/meaning.hpp"
#include "optpipe/formulation/model_families.hpp"
#include "optpipe/formulation/operation_table.hpp"
#include "optpipe/formulation/options.hpp"
#include "optpipe/milp/model.hpp"
#include "optpipe/milp/result.hpp"
#include "optpipe/pipeline/problem.hpp"

#include <memory>
#include <vector>

namespace optpipe::formulation {

/// A problem as a mixed-integer linear model that minimizes C.
struct formulated {
    milp::model model;
    /// For each variable of the model, its meaning.
    std::vector<meaning> meanings;
    std::shared_ptr<const operation_table> operations;
    family_sizes sizes{};
    /// Whether the operations of each kind and stage run in the order of microbatches.
    bool keeps_order = false;
    /// Whether the model has the same optimum as the problem, if the horizon allows this optimum. An exact model
    /// excludes no optimum, and all its solutions are schedules. If a model is neither exact nor pooled, its bound
    /// doesn't hold for all schedules.
    bool is_exact = true;
    /// Whether the model is a relaxation: its bound holds, but its solutions may not be schedules.
    bool is_pooled = false;
    double horizon = 0.0;

    [[nodiscard]] milp::model_size size() const {
        milp::model_size all;
        for (const auto& s : sizes) {
            all.variables += s.variables;
            all.integers += s.integers;
            all.rows += s.rows;
            all.nonzeros += s.nonzeros;
        }
        return all;
    }
};

namespace detail {

/// Whether the model would certainly be too large. The estimate counts the pairs of computations on each rank.
[[nodiscard]] bool is_certainly_too_large(const operation_table& t, const options& o);

} // namespace detail

/// The model of a problem that `validate` accepts. Refused (`does_not_apply`) if the model would be too large, or can't
/// have the wanted rule on overtaking. The model is infeasible if no schedule is within the horizon.
[[nodiscard]] outcome<std::shared_ptr<const formulated>> formulate(const problem& p, const options& o = {});

} // namespace optpipe::formulation

#if OPTPIPE_DEFINES(formulation)
#include "optpipe/formulation/copy_engines.hpp"
#include "optpipe/formulation/dependencies.hpp"
#include "optpipe/formulation/device_memory.hpp"
#include "optpipe/formulation/end_times.hpp"
#include "optpipe/formulation/exclusivity.hpp"
#include "optpipe/formulation/host_memory.hpp"
#include "optpipe/formulation/load_rows.hpp"
#include "optpipe/formulation/memory_area_rows.hpp"
#include "optpipe/formulation/microbatch_order.hpp"
#include "optpipe/formulation/model_builder.hpp"
#include "optpipe/formulation/monotone_rows.hpp"
#include "optpipe/formulation/objective.hpp"
#include "optpipe/formulation/stash_pool.hpp"
#include "optpipe/formulation/storage_options.hpp"
#include "optpipe/formulation/time_grid.hpp"
#include "optpipe/formulation/transfer_windows.hpp"
#include "optpipe/schedule/builders/builder.hpp"

#include <algorithm>
#include <cstddef>
#include <utility>

namespace optpipe::formulation {
namespace detail {

inline void add_families(model_builder& d) {
    add_end_times(d);
    add_objective(d);
    add_dependencies(d);
    add_exclusivity(d);
    add_full_backwards(d);
    add_storage_options(d);
    add_transfer_windows(d);
    add_copy_engines(d);
    device_memory{d}.add();
    host_memory{d}.add();
    if (d.is_pooled()) stash_pool{d}.add();
}

inline void add_strengthenings(model_builder& d) {
    const auto& with = d.wanted().with;
    if (with.monotone) monotone_rows{d}.add();
    if (with.load) add_load_rows(d);
    if (with.load) add_work_rows(d);
    if (with.tails) add_tail_rows(d);
    if (with.memory_area && is_plain(d.problem())) memory_area_rows{d}.add();
}

OPTPIPE_INLINE bool is_certainly_too_large(const operation_table& t, const options& o) {
    std::size_t pairs = 0;
    for (const rank r : t.problem().graph.all_ranks()) {
        std::size_t own = 0;
        for (const stage s : t.stages_on(r))
            own += t.microbatches() * (std::size_t{1} + t.has_gradient(s) + t.has_weight(s) + t.may_recompute(s));
        pairs += own * own / 4;
    }
    return pairs > o.most_rows;
}

} // namespace detail

OPTPIPE_INLINE outcome<std::shared_ptr<const formulated>> formulate(const problem& p, const options& o) {
    if (!p.overlaps.empty()) return does_not_apply("there is no model with pairs of a forward and a backward");
    auto table = std::make_shared<const operation_table>(p);
    if (!has_form(*table, o.overtaking)) {
        refusal unknown;
        unknown.sentence = is_plain(p)
                               ? "with these storage options there is only the model that names microbatches"
                               : "for problems that aren't plain there is only the model that names microbatches";
        return unknown;
    }
    refusal too_large;
    too_large.sentence = "the model would exceed the row limit";
    if (detail::is_certainly_too_large(*table, o)) return too_large;
    double horizon = std::min(o.horizon, p.serial_time()).value();
    auto rounded = o;
    if (const auto grid = time_grid(*table); grid && p.objective == objective_kind::makespan) {
        horizon = round_down(horizon, *grid);
        rounded.bound = duration{round_up(o.bound.value(), *grid)};
    }
    model_builder d{*table, rounded, horizon};
    if (d.is_stopped()) return was_stopped();
    detail::add_families(d);
    if (o.stop && o.stop()) return was_stopped();
    detail::add_strengthenings(d);
    if (o.stop && o.stop()) return was_stopped();
    if (d.is_too_large()) return too_large;
    auto result = std::make_shared<formulated>();
    if (d.contradiction()) d.model().add_row(1.0, {}, milp::infinity, "nothing_within_the_horizon");
    d.model().set_name(p.name);
    result->model = std::move(d.model());
    result->meanings = std::move(d.meanings());
    result->operations = table;
    result->sizes = d.sizes();
    result->keeps_order = d.keeps_order();
    result->is_exact = formulation::keeps_order(*table, overtaking::allowed) == result->keeps_order;
    result->is_pooled = d.is_pooled();
    result->horizon = horizon;
    return std::shared_ptr<const formulated>{std::move(result)};
}

} // namespace optpipe::formulation
#endif
