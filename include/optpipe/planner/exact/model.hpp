#pragma once

#include "optpipe/core/contract.hpp"
#include "optpipe/planner/exact/literal.hpp"

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace optpipe::exact {

/// Something that takes time. It has no meaning where its presence is false.
struct task {
    ticks length = 0;
    literal presence = always;
};

/// start(to) ≥ start(from) + gap, where the guard holds and both tasks are present.
struct difference {
    task_index from = 0;
    task_index to = 0;
    ticks gap = 0;
    literal guard = always;
};

/// A variable that says how two tasks lie to each other. True: both are present and start(second) ≥ start(first) + gap.
/// False: start(first) ≥ start(second) + back, or one of them is absent.
struct choice {
    task_index first = 0;
    task_index second = 0;
    ticks gap = 0;
    ticks back = 0;
};

/// Tasks that exclude each other, and the literal "i before j" of every two of them, in row-major order. Such a literal
/// says something only where both are present.
struct machine {
    std::vector<task_index> tasks{};
    std::vector<literal> before{};

    [[nodiscard]] literal order(std::size_t i, std::size_t j) const { return before[i * tasks.size() + j]; }
};

/// One way to use up a budget.
struct expense {
    literal spent{};
    ticks cost = 0;
    /// Positions of the expenses of the same budget that this one brings along.
    std::vector<std::uint32_t> also{};
};

/// Where the guard holds, the cost of all that is spent is at most the capacity. Costs are positive.
struct budget {
    literal guard = always;
    ticks capacity = 0;
    std::vector<expense> expenses{};
};

/// What a search has to decide: the tasks' order and presence, such that there are starts with earliest ≤ start ≤
/// latest that keep all differences, choices, machines, budgets and clauses.
struct model {
    std::vector<task> tasks{};
    std::vector<difference> differences{};
    /// One per variable; variables without tasks have first == second.
    std::vector<choice> choices{choice{}};
    std::vector<machine> machines{};
    std::vector<budget> budgets{};
    std::vector<std::vector<literal>> clauses{};
    /// For each variable the one that it implies directly (of presences: n ≥ k + 1 implies n ≥ k); 0: none.
    std::vector<std::uint32_t> implied{0};

    [[nodiscard]] std::size_t variables() const { return choices.size(); }
    task_index add_task(ticks length, literal presence = always) {
        tasks.push_back({length, presence});
        return static_cast<task_index>(tasks.size() - 1);
    }
    literal add_variable() { return add_choice({}); }
    literal add_choice(choice c) {
        choices.push_back(c);
        implied.push_back(0);
        return {static_cast<std::uint32_t>(choices.size() - 1), false};
    }
    void add_difference(task_index from, task_index to, ticks gap, literal guard = always) {
        differences.push_back({from, to, gap, guard});
    }
    /// Both literals are positive.
    void add_implication(literal from, literal to) {
        implied[from.variable()] = to.variable();
        clauses.push_back({!from, to});
    }
    /// Whether `p` can't hold without `q`, as far as the chains of implications tell.
    [[nodiscard]] bool implies(literal p, literal q) const {
        if (q == always || p == q) return true;
        if (p.negated() || q.negated()) return false;
        for (auto v = implied[p.variable()]; v != 0; v = implied[v])
            if (v == q.variable()) return true;
        return false;
    }
};

} // namespace optpipe::exact
