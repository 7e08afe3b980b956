#pragma once

#include "optpipe/planner/cp/literal.hpp"
#include "optpipe/planner/cp/model.hpp"
#include "optpipe/planner/cp/order_literals.hpp"
#include "optpipe/planner/cp/pipeline_tasks.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace optpipe::cp {

/// Builds a knapsack constraint for the start of a task. At the start of the task, the constraint limits the memory
/// that other tasks hold.
class knapsack_builder {
public:
    knapsack_builder(model& m, order_literals& known, task_index at) : model_{&m}, known_{&known}, at_{at} {}

    /// The memory limit minus the memory that is acquired in any case.
    ticks capacity = 0;

    /// Adds an acquisition of `amount` at the start of `by`.
    void taken(task_index by, ticks amount) {
        if (amount > 0) add(known_->starts_before(by, at_), amount, by, false);
    }
    /// Adds a release of `amount` at the end of task `by`.
    void given(task_index by, ticks amount) {
        if (amount <= 0) return;
        capacity += amount;
        add(!known_->ends_before(by, at_), amount, by, true);
    }
    /// Adds an acquisition at the start of task `by` and a release at its end. If one literal decides the acquisition
    /// and the release, only their difference is added.
    void exchanged(task_index by, ticks acquired, ticks released) {
        if (acquired > 0 && released > 0 && known_->starts_before(by, at_) == known_->ends_before(by, at_)) {
            const auto both = std::min(acquired, released);
            acquired -= both;
            released -= both;
        }
        taken(by, acquired);
        given(by, released);
    }
    void used_if(literal l, ticks amount) {
        if (amount > 0) add(l, amount, no_task, false);
    }
    /// Adds terms with nested literals. Each literal implies the literals before it.
    void used_if_nested(const std::vector<std::pair<literal, ticks>>& terms) {
        std::vector<std::uint32_t> before;
        for (const auto& [l, amount] : terms) {
            const auto place = result_.terms.size();
            used_if(l, amount);
            if (result_.terms.size() == place) continue;
            result_.terms.back().implied_terms = before;
            before.push_back(static_cast<std::uint32_t>(place));
        }
    }
    /// Adds the constraint to the model if the constraint can be violated.
    void finish(literal guard) {
        ticks most = 0;
        for (const auto& e : result_.terms)
            most += e.weight;
        if (most <= capacity) return;
        join();
        result_.guard = guard;
        result_.capacity = capacity;
        model_->knapsacks.push_back(std::move(result_));
    }

private:
    void add(literal chosen, ticks amount, task_index by, bool at_end) {
        if (chosen == never) return;
        if (chosen == always) {
            capacity -= amount;
            return;
        }
        result_.terms.push_back({chosen, amount, {}});
        origins_.push_back({by, at_end});
    }
    /// Sets implied terms. A release that hasn't happened implies that no later release has happened. An acquisition
    /// that has happened implies that all earlier acquisitions have happened.
    void join() {
        constexpr std::size_t most_pairs = std::size_t{1} << 16U; // with more pairs, fewer implied terms are set:
                                                                  // weaker, but still correct
        if (origins_.size() * origins_.size() > most_pairs) return;
        const auto& paths = known_->paths();
        for (std::uint32_t e = 0; e < origins_.size(); ++e)
            for (std::uint32_t other = 0; other < origins_.size(); ++other) {
                const auto [x, ended] = origins_[e];
                const auto [y, other_ended] = origins_[other];
                if (e == other || x == no_task || y == no_task || ended != other_ended) continue;
                const auto& all = model_->tasks;
                const bool ends_later =
                    paths(x, y) > longest_paths::none && paths(x, y) + all[y].length >= all[x].length;
                const bool along = ended ? ends_later && model_->implies(all[y].presence, all[x].presence)
                                         : paths(y, x) >= 0 && model_->implies(all[x].presence, all[y].presence);
                if (along) result_.terms[e].implied_terms.push_back(other);
            }
    }

    struct origin {
        task_index task;
        bool at_end;
    };

    model* model_;
    order_literals* known_;
    task_index at_;
    knapsack_constraint result_{};
    std::vector<origin> origins_;
};

} // namespace optpipe::cp
