#pragma once

#include "optpipe/planner/exact/literal.hpp"
#include "optpipe/planner/exact/pipeline_model.hpp"
#include "optpipe/planner/exact/reading.hpp"
#include "optpipe/planner/exact/solver.hpp"
#include "optpipe/planner/exact/witness.hpp"
#include "optpipe/schedule/schedule.hpp"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <utility>

namespace optpipe::exact {

/// Whether a problem has a schedule with an objective of at most T, for one T after the other, each below the last.
template <witness Witness = no_witness> class prover {
public:
    explicit prover(const pipeline_model& m, std::uint64_t seed = 1, Witness known = {})
        : model_{&m}, solver_{m.tasks(), seed, std::move(known)} {}

    [[nodiscard]] const pipeline_model& model() const { return *model_; }
    [[nodiscard]] Witness& known() { return solver_.known(); }
    [[nodiscard]] std::size_t conflicts() const { return solver_.conflicts(); }

    /// `most` in the model's ticks.
    void limit(ticks most) {
        if (limited_ && most >= limit_) return;
        limited_ = true;
        limit_ = most;
        model_->limit(solver_, most);
    }
    [[nodiscard]] ticks limit() const { return limit_; }
    /// Choices are first tried as they are in this schedule.
    void follow(const schedule& s) { follow(read_schedule(*model_, s)); }
    void follow(const assignment& values) {
        for (std::uint32_t v = 1; v < model_->tasks().variables(); ++v)
            solver_.prefer({v, !values.values[v]});
    }
    /// Whether propagation alone leaves it possible, as far as it has come by `stop()`.
    [[nodiscard]] bool may_be_possible(std::function<bool()> stop = {}) {
        return solver_.propagate_root(std::move(stop));
    }
    verdict search(std::size_t conflicts, const std::function<bool()>& stop) { return solver_.search(conflicts, stop); }

    /// After `verdict::solved`.
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
    solver<Witness> solver_;
    ticks limit_ = 0;
    bool limited_ = false;
};

} // namespace optpipe::exact
