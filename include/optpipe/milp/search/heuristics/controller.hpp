#pragma once

#include "optpipe/milp/search/heuristics/diving.hpp"
#include "optpipe/milp/search/heuristics/rins.hpp"
#include "optpipe/milp/search/tree/tree_worker.hpp"

#include <array>
#include <cstddef>
#include <memory>
#include <span>
#include <vector>

namespace optpipe::milp::search {

/// Parameters that decide when heuristics run, and for how long. Not tuned.
struct heuristic_parameters {
    /// Number of nodes between two heuristic dives of a worker. The nodes may belong to several dives of the tree
    /// search.
    std::size_t nodes_per_diving = 200;
    /// Node limit of the search of a neighbourhood, at the root and later.
    std::size_t root_nodes = 200;
    std::size_t tree_nodes = 300;
    /// Limit of simplex iterations in a neighbourhood. The limit is `least_iterations` + (iterations of the worker) /
    /// `share_of_iterations`.
    std::size_t least_iterations = 1000;
    std::size_t share_of_iterations = 4;
};

/// Decides which heuristics one worker runs, and when.
class heuristic_controller {
public:
    /// `first` is the index of this controller. Controllers of workers that search together start with different rules
    /// for dives.
    explicit heuristic_controller(const context& c, std::size_t first = 0)
        : context_{&c}, locks_{*c.instance}, next_rule_{first} {}

    /// Runs heuristics that find a first point. Fast heuristics come first. The heuristics are split into `parts`
    /// parts, and this call runs part `part`.
    void points_at_root(tree_worker& w, const node& root, std::size_t part = 0, std::size_t parts = 1) {
        if (!context_->options->heuristics) return;
        if (part == 0) users(w, root);
        constexpr std::array rules{diving_rule::locked, diving_rule::fractional, diving_rule::pseudocost};
        for (std::size_t k = part; k < rules.size(); k += parts)
            diving{*context_, w, locks_}.run(root, rules[k], {}, as_many_again(w));
    }
    /// Runs improvement heuristics, if the worker has a point.
    void neighbours_at_root(tree_worker& w, const node& root) {
        if (context_->options->heuristics) neighbourhood(w, root, with_.root_nodes);
    }
    void before_dive(tree_worker& w, const node& n) {
        if (!context_->options->heuristics) return;
        users(w, n);
        if (w.nodes() >= next_diving_) {
            next_diving_ = w.nodes() + with_.nodes_per_diving;
            dive_once(w, n);
        }
        if (w.nodes() >= next_neighbourhood_) {
            next_neighbourhood_ = 2 * w.nodes();
            neighbourhood(w, n, with_.tree_nodes);
        }
    }

private:
    static constexpr heuristic_parameters with_{};

    void dive_once(tree_worker& w, const node& n) {
        constexpr std::array rules{diving_rule::guided, diving_rule::pseudocost, diving_rule::locked,
                                   diving_rule::fractional};
        auto rule = rules[next_rule_++ % rules.size()];
        const auto incumbent = w.found().point;
        if (rule == diving_rule::guided && !incumbent) rule = diving_rule::fractional;
        diving{*context_, w, locks_}.run(
            n, rule, incumbent ? std::span<const double>{*incumbent} : std::span<const double>{}, as_many_again(w));
    }
    /// Limit of simplex iterations: `least_iterations` + the worker's iterations for relaxations.
    static std::size_t as_many_again(tree_worker& w) { return with_.least_iterations + w.lp().solver().iterations(); }
    void users(tree_worker& w, const node& n) {
        if (!context_->help.solution_near || !relaxed(w, n)) return;
        const std::vector<double> point(w.lp().point().begin(), w.lp().point().end());
        if (auto found = context_->help.solution_near(point)) w.offer_given(std::move(*found));
    }
    /// Searches a neighbourhood of the incumbent. Simplex iterations are limited to a share of the iterations that the
    /// worker's relaxations have taken.
    void neighbourhood(tree_worker& w, const node& n, std::size_t nodes) {
        const auto incumbent = w.found().point;
        if (!incumbent || !context_->solve_sub || !relaxed(w, n)) return;
        const sub_effort most{nodes, with_.least_iterations + w.lp().solver().iterations() / with_.share_of_iterations};
        const std::vector<double> point(w.lp().point().begin(), w.lp().point().end());
        if (const auto found = rins(*context_, w.engine().bounds(), *incumbent, point, most, w.found().cutoff))
            w.offer(*found);
    }
    static bool relaxed(tree_worker& w, const node& n) {
        double bound = n.bound;
        bool has_point = false;
        return w.enter(n) && w.relax(bound, has_point) == tree_worker::verdict::open && has_point;
    }

    const context* context_;
    locks locks_;
    std::size_t next_rule_;
    std::size_t next_diving_ = with_.nodes_per_diving;
    std::size_t next_neighbourhood_ = with_.nodes_per_diving;
};

} // namespace optpipe::milp::search
