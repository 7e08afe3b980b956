#pragma once

#include "optpipe/core/contract.hpp"
#include "optpipe/planner/cp/literal.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace optpipe::cp {

/// An interval of fixed length. The task is absent if its presence literal is false.
struct task {
    ticks length = 0;
    literal presence = always;
};

/// Requires start(to) ≥ start(from) + gap, if the guard holds and both tasks are present.
struct difference {
    task_index from = 0;
    task_index to = 0;
    ticks gap = 0;
    literal guard = always;
};

/// A variable for the order of two tasks. If the variable is true, both tasks are present and start(second) ≥
/// start(first) + gap. If the variable is false, start(first) ≥ start(second) + back, or one of the two tasks is
/// absent.
struct choice {
    task_index first = 0;
    task_index second = 0;
    ticks gap = 0;
    ticks back = 0;
};

/// Tasks that must not overlap. Each pair (i, j) has a literal "i before j", in row-major order. The literal matters
/// only if both i and j are present.
struct machine {
    std::vector<task_index> tasks{};
    std::vector<literal> before{};

    [[nodiscard]] literal order(std::size_t i, std::size_t j) const { return before[i * tasks.size() + j]; }
};

/// One term of a knapsack constraint.
struct knapsack_term {
    literal chosen{};
    ticks weight = 0;
    /// Indices of the terms, in the same constraint, that this term implies.
    std::vector<std::uint32_t> implied_terms{};
};

/// If the guard holds, the weights of the chosen terms sum to at most the capacity. Weights are positive.
struct knapsack_constraint {
    literal guard = always;
    ticks capacity = 0;
    std::vector<knapsack_term> terms{};
};

/// A scheduling model. A solution is an order of the tasks, and the set of present tasks. Starts between earliest and
/// latest satisfy all differences, choices, machines, knapsacks and clauses.
struct model {
    std::vector<task> tasks{};
    std::vector<difference> differences{};
    /// One choice per variable. Variables without tasks have first == second.
    std::vector<choice> choices{choice{}};
    std::vector<machine> machines{};
    std::vector<knapsack_constraint> knapsacks{};
    std::vector<std::vector<literal>> clauses{};
    /// For each variable, a variable that it directly implies, or 0. Example: the presence of a stage's (k + 1)-th
    /// transfer pair implies the presence of the k-th pair.
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
    /// Adds a clause, but leaves out its constant literals.
    void add_clause(std::vector<literal> c) {
        if (std::find(c.begin(), c.end(), always) != c.end()) return;
        std::erase(c, never);
        clauses.push_back(std::move(c));
    }
    /// A literal that is true if any literal of `some` is true.
    literal add_any_of(std::vector<literal> some) {
        std::erase(some, never);
        if (some.empty()) return never;
        if (some.size() == 1) return some.front();
        const auto any = add_variable();
        for (const auto l : some)
            add_clause({!l, any});
        some.push_back(!any);
        add_clause(std::move(some));
        return any;
    }
    /// Requires that exactly one literal other than `never` is true.
    void add_exactly_one(std::vector<literal> some) {
        std::erase(some, never);
        for (std::size_t a = 0; a < some.size(); ++a)
            for (std::size_t b = a + 1; b < some.size(); ++b)
                add_clause({!some[a], !some[b]});
        add_clause(std::move(some));
    }
    /// Returns literals of which exactly one is true. If `count` is 2, the second literal is a variable, and the first
    /// literal its negation.
    [[nodiscard]] std::vector<literal> add_alternatives(std::size_t count) {
        if (count == 1) return {always};
        if (count == 2) {
            const auto second = add_variable();
            return {!second, second};
        }
        std::vector<literal> some(count);
        for (auto& l : some)
            l = add_variable();
        add_exactly_one(some);
        return some;
    }
    /// A literal that is true if any clause of `some` fails. A clause fails if all of its literals are false.
    literal add_any_fails(std::vector<std::vector<literal>> some) {
        for (auto& c : some)
            std::erase(c, never);
        std::erase_if(some, [](const auto& c) { return std::find(c.begin(), c.end(), always) != c.end(); });
        if (some.empty()) return never;
        if (std::any_of(some.begin(), some.end(), [](const auto& c) { return c.empty(); })) return always;
        if (some.size() == 1 && some.front().size() == 1) return !some.front().front();
        const auto fails = add_variable();
        for (auto& c : some) {
            c.push_back(fails);
            clauses.push_back(std::move(c));
        }
        return fails;
    }
    /// Adds the clause "`from` implies `to`", and records the implication for `implies`. Contract: both literals are
    /// positive.
    void add_implication(literal from, literal to) {
        implied[from.variable()] = to.variable();
        clauses.push_back({!from, to});
    }
    /// Whether `p` implies `q` by a chain of added implications.
    [[nodiscard]] bool implies(literal p, literal q) const {
        if (q == always || p == q) return true;
        if (p.negated() || q.negated()) return false;
        for (auto v = implied[p.variable()]; v != 0; v = implied[v])
            if (v == q.variable()) return true;
        return false;
    }
};

} // namespace optpipe::cp
