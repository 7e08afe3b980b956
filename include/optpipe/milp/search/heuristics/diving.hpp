#pragma once

#include "optpipe/milp/search/heuristics/rounding.hpp"
#include "optpipe/milp/search/tree/tree_worker.hpp"

#include <cmath>
#include <cstddef>
#include <limits>
#include <optional>
#include <span>
#include <vector>

namespace optpipe::milp::search {

enum class diving_rule : unsigned char {
    fractional, ///< rounds the least fractional column to the nearer integer
    pseudocost, ///< rounds the column whose past roundings have cost least
    guided,     ///< rounds towards the incumbent (Danna, Rothberg and Le Pape, 2005)
    locked,     ///< rounds in the direction that fewer rows block
};

/// One dive from a node. A dive rounds, propagates and solves the relaxation until a solution or a dead end. One wrong
/// rounding per column can be undone.
class diving {
public:
    diving(const context& c, tree_worker& worker, const locks& l) : context_{c}, worker_{worker}, locks_{l} {}

    /// `incumbent` may be empty, unless the rule is `guided`. The dive ends once the relaxations have taken
    /// `most_iterations`.
    void run(node n, diving_rule rule, std::span<const double> incumbent, std::size_t most_iterations) {
        const auto last = worker_.lp().solver().iterations() + most_iterations;
        if (!settle(n)) return;
        for (std::size_t depth = 0; depth < context_.instance->columns() && !context_.limits->over(); ++depth) {
            if (worker_.lp().solver().iterations() > last) return;
            const auto candidates = fractional_columns(context_, worker_.lp().point());
            if (candidates.empty()) {
                static_cast<void>(worker_.offer_rounded());
                return;
            }
            const auto step = choose(candidates, rule, incumbent);
            n.decisions.push_back(step);
            if (settle(n)) continue;
            n.decisions.back() = negation(step);
            if (!settle(n)) return;
        }
    }

private:
    /// Sets up the bounds and the relaxation of the node. Returns false if the node is a dead end.
    bool settle(const node& n) {
        if (!worker_.enter(n)) return false;
        double bound = n.bound;
        bool has_point = false;
        return worker_.relax(bound, has_point) == tree_worker::verdict::open && has_point &&
               bound <= worker_.found().cutoff;
    }
    [[nodiscard]] literal choose(std::span<const fractional> candidates, diving_rule rule,
                                 std::span<const double> incumbent) const {
        const fractional* best = nullptr;
        double best_score = std::numeric_limits<double>::infinity();
        bool best_up = false;
        for (const auto& f : candidates) {
            const bool up = prefers_upper(f, rule, incumbent);
            const double score = price(f, rule, up);
            if (score >= best_score) continue;
            best = &f;
            best_score = score;
            best_up = up;
        }
        if (best == nullptr) best = &candidates.front();
        return best_up ? at_least(best->column, std::ceil(best->value))
                       : at_most(best->column, std::floor(best->value));
    }
    [[nodiscard]] bool prefers_upper(const fractional& f, diving_rule rule, std::span<const double> incumbent) const {
        switch (rule) {
        case diving_rule::fractional: return f.up() < f.down();
        case diving_rule::pseudocost:
            return f.up() * worker_.history().unit(f.column, true) < f.down() * worker_.history().unit(f.column, false);
        case diving_rule::guided: return incumbent[f.column] > f.value;
        case diving_rule::locked: {
            const auto up = locks_.up[f.column], down = locks_.down[f.column];
            return up != down ? up < down : f.up() < f.down();
        }
        }
        return false;
    }
    [[nodiscard]] double price(const fractional& f, diving_rule rule, bool up) const {
        const double distance = up ? f.up() : f.down();
        switch (rule) {
        case diving_rule::fractional:
        case diving_rule::guided: return distance;
        case diving_rule::pseudocost: return distance * worker_.history().unit(f.column, up);
        case diving_rule::locked: return distance * static_cast<double>(1 + (up ? locks_.up : locks_.down)[f.column]);
        }
        return distance;
    }

    const context& context_;
    tree_worker& worker_;
    const locks& locks_;
};

} // namespace optpipe::milp::search
