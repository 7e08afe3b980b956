#pragma once

#include "optpipe/planner/cp/model.hpp"
#include "optpipe/planner/cp/pipeline_tasks.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <unordered_map>
#include <utility>
#include <vector>

namespace optpipe::cp {

/// The literals for the order of two tasks of a model. Literals are created on first use, and are constant if
/// differences alone decide the order.
class order_literals {
public:
    /// Uses the differences that `m` has at the time of this call. `m` must outlive this object.
    explicit order_literals(model& m)
        : model_{&m}, paths_{m}, instants_{std::any_of(m.tasks.begin(), m.tasks.end(),
                                                       [](const task& t) { return t.length == 0; })} {}

    [[nodiscard]] const longest_paths& paths() const { return paths_; }
    /// Whether some task has no duration. If some task has no duration, two tasks that start together may be ordered
    /// either way.
    [[nodiscard]] bool has_instants() const { return instants_; }

    /// Requires that the tasks don't overlap.
    void add_machine(std::vector<task_index> tasks) {
        const auto n = tasks.size();
        if (n < 2) return;
        machine on{std::move(tasks), std::vector<literal>(n * n, never)};
        for (std::size_t i = 0; i < n; ++i)
            for (std::size_t j = i + 1; j < n; ++j) {
                on.before[i * n + j] = order_literal(on.tasks[i], on.tasks[j]);
                on.before[j * n + i] = !on.before[i * n + j];
            }
        model_->machines.push_back(std::move(on));
    }

    /// If `y` is present, the returned literal tells whether `x` is present and ends no later than `y` starts.
    literal ends_before(task_index x, task_index y) {
        const auto& all = model_->tasks;
        if (paths_(x, y) >= all[x].length) return presence_given(x, y);
        if (paths_(y, x) != longest_paths::none && paths_(y, x) + all[x].length > 0) return never;
        const auto t = orders_.find(key(std::min(x, y), std::max(x, y)));
        if (t != orders_.end()) {
            const auto l = x < y ? t->second : !t->second;
            if (all[x].presence == always || !l.negated()) return l;
        }
        return find(ends_, x, y, all[x].length, -all[x].length);
    }
    /// If `y` is present, the returned literal tells whether `x` is present and starts no later than `y`. If several
    /// tasks of one memory start together, the literal may be false for some pairs. Among tasks that start together,
    /// the literals put one task after all others.
    literal starts_before(task_index x, task_index y) {
        const auto& all = model_->tasks;
        if (paths_(x, y) >= 0) return presence_given(x, y);
        if (paths_(y, x) > 0) return never;
        const bool x_stays = all[x].presence == always;
        const bool y_stays = all[y].presence == always;
        const auto t = orders_.find(key(std::min(x, y), std::max(x, y)));
        const bool apart = t != orders_.end() && all[x].length > 0 && all[y].length > 0;
        if (apart && x_stays && y_stays) return x < y ? t->second : !t->second;
        // For an optional task, the negated reverse order is enough: the literal has no meaning if the task is absent.
        if (x_stays && (!y_stays || y < x)) return !find(starts_, y, x, 0, instants_ ? 1 : 0);
        // Two optional tasks have a literal for each order. If both tasks start together, the true literal puts the
        // task with the larger index first.
        return find(starts_, x, y, 0, (y_stays ? instants_ : !apart && x > y) ? 1 : 0);
    }

    /// A literal with the meaning start(y) ≥ start(x) + gap, for tasks that are always present.
    literal separated(task_index x, task_index y, ticks gap) {
        if (paths_(x, y) >= gap) return always;
        return find(apart_, x, y, gap, -gap);
    }

    /// A literal with the meaning "x runs before y". The literal is constant if differences decide the order.
    [[nodiscard]] literal runs_before(task_index x, task_index y) {
        return x < y ? order_literal(x, y) : !order_literal(y, x);
    }

private:
    static std::uint64_t key(task_index x, task_index y) { return std::uint64_t{x} << 32U | y; }

    literal presence_given(task_index x, task_index y) const {
        const auto p = model_->tasks[x].presence;
        return model_->implies(model_->tasks[y].presence, p) ? always : p;
    }
    literal order_literal(task_index x, task_index y) {
        const auto found = orders_.find(key(x, y));
        if (found != orders_.end()) return found->second;
        const auto& all = model_->tasks;
        literal result;
        if (paths_(x, y) >= all[x].length && paths_(x, y) > longest_paths::none)
            result = always;
        else if (paths_(y, x) >= all[y].length)
            result = never;
        else
            result = make({x, y, all[x].length, all[y].length});
        orders_.emplace(key(x, y), result);
        return result;
    }
    literal find(std::unordered_map<std::uint64_t, literal>& known, task_index x, task_index y, ticks gap, ticks back) {
        const auto found = known.find(key(x, y));
        if (found != known.end()) return found->second;
        const auto l = make({x, y, gap, back});
        known.emplace(key(x, y), l);
        return l;
    }
    literal make(const choice& c) {
        const auto l = model_->add_choice(c);
        for (const auto t : {c.first, c.second})
            if (model_->tasks[t].presence != always) model_->clauses.push_back({!l, model_->tasks[t].presence});
        return l;
    }

    model* model_;
    longest_paths paths_;
    /// Whether some task has no duration. If no task has duration 0, at most two tasks of one memory start together,
    /// and either order is allowed. With tasks of duration 0, three tasks may start together, and choices for each pair
    /// could form a cycle. If tasks start together, the task with the largest index among those that are always present
    /// is ordered last. Among optional tasks, the task with the smallest index is ordered last.
    bool instants_;
    std::unordered_map<std::uint64_t, literal> orders_;
    std::unordered_map<std::uint64_t, literal> ends_;
    std::unordered_map<std::uint64_t, literal> starts_;
    std::unordered_map<std::uint64_t, literal> apart_;
};

} // namespace optpipe::cp
