#pragma once

#include "optpipe/core/tolerance.hpp"
#include "optpipe/pipeline/problem.hpp"
#include "optpipe/planner/cp/grid.hpp"
#include "optpipe/planner/cp/model.hpp"
#include "optpipe/planner/cp/order_literals.hpp"
#include "optpipe/planner/cp/pipeline_tasks.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace optpipe::cp {

/// Builds the knapsack constraint of one start: the memory that other tasks have acquired by then and not released.
class knapsack_builder {
public:
    knapsack_builder(model& m, order_literals& known, task_index at) : model_{&m}, known_{&known}, at_{at} {}

    /// The limit, less the memory that is acquired in any case.
    ticks capacity = 0;

    /// Adds an acquisition of `amount` at the start of `by`.
    void taken(task_index by, ticks amount) {
        if (amount > 0) add(known_->starts_before(by, at_), amount, by, false);
    }
    /// Adds a release of `amount` at the end of `by`.
    void given(task_index by, ticks amount) {
        if (amount <= 0) return;
        capacity += amount;
        add(!known_->ends_before(by, at_), amount, by, true);
    }
    void used_if(literal l, ticks amount) {
        if (amount > 0) add(l, amount, no_task, false);
    }
    /// Adds terms whose literals are nested: each literal implies those before it.
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
    /// Adds the constraint unless it can't be violated.
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
    /// A release that hasn't happened implies the same of later releases; an acquisition implies the earlier ones.
    void join() {
        constexpr std::size_t most_pairs = std::size_t{1} << 16U; // without them the terms are weaker, not wrong
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

/// Knapsack constraints of one rank's device and host memory, one for each start that acquires memory.
class rank_memory {
public:
    rank_memory(const problem& p, rank r, const grid& units, const per_stage<stage_tasks>& tasks, order_literals& known,
                model& m)
        : problem_{&p}, units_{&units}, tasks_{&tasks}, known_{&known}, model_{&m} {
        for (const stage s : p.graph.all_stages())
            if (p.rank_of(s) == r) own_.push_back(s);
        device_ = most(p.memory_limit[r]);
        host_ = most(p.host_memory_limit[r]);
        limited_ = !p.memory_limit[r].is_unlimited();
        host_limited_ = !p.host_memory_limit[r].is_unlimited();
    }

    void add_knapsacks() {
        for (const stage s : own_) {
            const auto& t = (*tasks_)[s];
            const auto stash = units_->below(problem_->costs[s].activation.value());
            for (std::size_t k = 0; limited_ && k < t.forward.size(); ++k) {
                if (stash > 0) add_device(t.forward[k], stash, always);
                if (!t.full.empty()) add_device(t.gradient[k], weight_stash(s) - stash, !t.full[k]);
            }
            for (std::size_t k = 0; k < t.offload.size(); ++k) {
                if (limited_) add_device(t.reload[k], stash, model_->tasks[t.reload[k]].presence);
                if (host_limited_) add_host(t.offload[k], stash);
            }
        }
    }

private:
    [[nodiscard]] ticks most(memory_size limit) const {
        if (limit.is_unlimited()) return 0;
        // Memory in use is a sum of stashes, each rounded down.
        return units_->below((limit + tolerance{}.at(problem_->memory_scale())).value());
    }
    [[nodiscard]] ticks weight_stash(stage s) const { return units_->below(problem_->costs[s].weight_stash.value()); }

    void add_device(task_index at, ticks amount, literal guard) {
        knapsack_builder use{*model_, *known_, at};
        use.capacity = device_ - amount;
        for (const stage s : own_)
            add_stage(use, s, at);
        use.finish(guard);
    }
    void add_stage(knapsack_builder& use, stage s, task_index at) {
        const auto& t = (*tasks_)[s];
        const auto stash = units_->below(problem_->costs[s].activation.value());
        const auto kept = t.weight.empty() ? 0 : weight_stash(s);
        for (std::size_t k = 0; k < t.forward.size(); ++k) {
            if (t.forward[k] != at) use.taken(t.forward[k], stash);
            if (!t.full.empty()) {
                use.given(t.weight[k], stash);
                if (t.gradient[k] != at) use.used_if(between(s, k, at), kept - stash);
                continue;
            }
            use.given(t.gradient[k], stash - std::min(stash, kept));
            if (!t.weight.empty()) use.given(t.weight[k], std::min(stash, kept));
        }
        for (std::size_t k = 0; k < t.offload.size(); ++k) {
            use.given(t.offload[k], stash);
            if (t.reload[k] != at) use.taken(t.reload[k], stash);
        }
    }
    /// Whether I of (s, k) has started and its W hasn't ended when `at` starts, and the two aren't one B.
    literal between(stage s, std::size_t k, task_index at) {
        const auto& t = (*tasks_)[s];
        const auto begun = known_->starts_before(t.gradient[k], at);
        const auto ended = known_->ends_before(t.weight[k], at);
        if (begun == never || ended == always) return never;
        const auto both = model_->add_variable();
        model_->clauses.push_back({!begun, ended, t.full[k], both});
        std::erase(model_->clauses.back(), never);
        return both;
    }
    void add_host(task_index at, ticks amount) {
        knapsack_builder use{*model_, *known_, at};
        use.capacity = host_ - amount;
        for (const stage s : own_) {
            const auto stash = units_->below(problem_->costs[s].activation.value());
            const auto& t = (*tasks_)[s];
            for (std::size_t k = 0; k < t.offload.size(); ++k) {
                if (t.offload[k] != at) use.taken(t.offload[k], stash);
                use.given(t.reload[k], stash);
            }
        }
        use.finish(model_->tasks[at].presence);
    }

    const problem* problem_;
    const grid* units_;
    const per_stage<stage_tasks>* tasks_;
    order_literals* known_;
    model* model_;
    std::vector<stage> own_;
    ticks device_ = 0;
    ticks host_ = 0;
    bool limited_ = false;
    bool host_limited_ = false;
};

inline void add_memory_knapsacks(const problem& p, rank r, const grid& units, const per_stage<stage_tasks>& tasks,
                                 order_literals& known, model& m) {
    rank_memory{p, r, units, tasks, known, m}.add_knapsacks();
}

} // namespace optpipe::cp
