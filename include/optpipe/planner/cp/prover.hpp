#pragma once

#include "optpipe/planner/cp/assignment.hpp"
#include "optpipe/planner/cp/clause_pool.hpp"
#include "optpipe/planner/cp/literal.hpp"
#include "optpipe/planner/cp/pipeline_model.hpp"
#include "optpipe/planner/cp/solver.hpp"
#include "optpipe/schedule/schedule.hpp"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <utility>

namespace optpipe::cp {

/// Decides whether a problem has a schedule with objective ≤ T, for a decreasing sequence of T.
class prover {
public:
    explicit prover(const pipeline_model& m, std::uint64_t seed = 1) : model_{&m}, solver_{m.tasks(), seed} {}

    /// Shares clauses with other provers of the same problem and form. `pool` must outlive this prover.
    void share(clause_pool& pool) { solver_.share(pool); }

    [[nodiscard]] std::size_t conflicts() const { return solver_.conflicts(); }
    [[nodiscard]] std::size_t steps() const { return solver_.steps(); }

    /// Limits the objective to `most`, in the model's ticks.
    void limit(ticks most) {
        if (most >= limit()) return;
        solver_.set_limit(most);
        model_->limit(solver_, most);
    }
    [[nodiscard]] ticks limit() const { return solver_.limit(); }
    /// The search first tries the values that choices have in this schedule.
    void hint(const schedule& s) { hint(assignment_of(*model_, s)); }
    void hint(const assignment& values) {
        for (std::uint32_t v = 1; v < model_->tasks().variables(); ++v)
            solver_.hint({v, !values.values[v]});
    }
    /// Later searches only look for schedules in which these literals are true.
    void assume(std::vector<literal> some) { solver_.assume(std::move(some)); }
    /// Propagates at the root. Returns false if propagation shows that the model is infeasible. Ends early if `stop()`
    /// returns true.
    [[nodiscard]] bool may_be_feasible(std::function<bool()> stop = {}) {
        return solver_.propagate_root(std::move(stop));
    }
    search_status search(std::size_t conflicts, const std::function<bool()>& stop) {
        return solver_.search(conflicts, stop);
    }

    /// The solution of the last search. Contract: the last search returned `search_status::solved`.
    [[nodiscard]] assignment solution() const {
        assignment a;
        const auto& m = model_->tasks();
        for (task_index t = 0; t < m.tasks.size(); ++t)
            a.starts.push_back(solver_.now().is_absent(t) ? 0 : solver_.now().earliest(t));
        for (std::uint32_t v = 0; v < m.variables(); ++v)
            a.values.push_back(solver_.now().is_true({v, false}));
        return a;
    }

private:
    const pipeline_model* model_;
    solver solver_;
};

} // namespace optpipe::cp
