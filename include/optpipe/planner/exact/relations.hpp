#pragma once

#include "optpipe/planner/exact/model.hpp"
#include "optpipe/planner/exact/pipeline_tasks.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <unordered_map>
#include <utility>
#include <vector>

namespace optpipe::exact {

/// The literals that say how two tasks of a model lie to each other, each made when it is first asked for, constant
/// where differences alone decide.
class relations {
public:
    /// Of the differences that `m` has by now; it outlives this.
    explicit relations(model& m) : model_{&m}, ways_{m} {}

    [[nodiscard]] const longest_ways& ways() const { return ways_; }

    /// These tasks exclude each other.
    void add_machine(std::vector<task_index> tasks) {
        const auto n = tasks.size();
        if (n < 2) return;
        machine on{std::move(tasks), std::vector<literal>(n * n, never)};
        for (std::size_t i = 0; i < n; ++i)
            for (std::size_t j = i + 1; j < n; ++j) {
                on.before[i * n + j] = turn(on.tasks[i], on.tasks[j]);
                on.before[j * n + i] = !on.before[i * n + j];
            }
        model_->machines.push_back(std::move(on));
    }

    /// Where `y` is present: `x` is present and ends no later than `y` starts.
    literal ends_before(task_index x, task_index y) {
        const auto& all = model_->tasks;
        if (ways_(x, y) >= all[x].length) return presence_beside(x, y);
        if (ways_(y, x) != longest_ways::none && ways_(y, x) + all[x].length > 0) return never;
        const auto t = turns_.find(key(std::min(x, y), std::max(x, y)));
        if (t != turns_.end()) {
            const auto l = x < y ? t->second : !t->second;
            if (all[x].presence == always || !l.negated()) return l;
        }
        return find(ends_, x, y, all[x].length, -all[x].length);
    }
    /// Where `y` is present: `x` is present and starts no later. Of two that start at once either may count as first.
    literal starts_before(task_index x, task_index y) {
        const auto& all = model_->tasks;
        if (ways_(x, y) >= 0) return presence_beside(x, y);
        if (ways_(y, x) > 0) return never;
        const bool x_stays = all[x].presence == always;
        const bool y_stays = all[y].presence == always;
        const auto t = turns_.find(key(std::min(x, y), std::max(x, y)));
        if (t != turns_.end() && x_stays && y_stays) return x < y ? t->second : !t->second;
        // A stay counts against what may be absent as the opposite: where that is absent nobody asks.
        if (x_stays && (!y_stays || y < x)) return !find(starts_, y, x, 0, 0);
        return find(starts_, x, y, 0, 0);
    }

    /// start(y) ≥ start(x) + gap, for tasks that are always present.
    literal apart(task_index x, task_index y, ticks gap) {
        if (ways_(x, y) >= gap) return always;
        return find(apart_, x, y, gap, -gap);
    }

    /// x runs before y; always or never where it's known.
    [[nodiscard]] literal turn_of(task_index x, task_index y) { return x < y ? turn(x, y) : !turn(y, x); }

private:
    static std::uint64_t key(task_index x, task_index y) { return std::uint64_t{x} << 32U | y; }

    literal presence_beside(task_index x, task_index y) const {
        const auto p = model_->tasks[x].presence;
        return model_->implies(model_->tasks[y].presence, p) ? always : p;
    }
    literal turn(task_index x, task_index y) {
        const auto found = turns_.find(key(x, y));
        if (found != turns_.end()) return found->second;
        const auto& all = model_->tasks;
        literal result;
        if (ways_(x, y) >= all[x].length && ways_(x, y) > longest_ways::none)
            result = always;
        else if (ways_(y, x) >= all[y].length)
            result = never;
        else
            result = make({x, y, all[x].length, all[y].length});
        turns_.emplace(key(x, y), result);
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
    longest_ways ways_;
    std::unordered_map<std::uint64_t, literal> turns_;
    std::unordered_map<std::uint64_t, literal> ends_;
    std::unordered_map<std::uint64_t, literal> starts_;
    std::unordered_map<std::uint64_t, literal> apart_;
};

} // namespace optpipe::exact
