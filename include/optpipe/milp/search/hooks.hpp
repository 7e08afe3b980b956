#pragma once

#include "optpipe/milp/expression.hpp"

#include <concepts>
#include <optional>
#include <span>
#include <vector>

namespace optpipe::milp {

/// Optional inputs of a search. Each input is a separate concept. A type may meet any of these concepts.
///
/// *Semantics.* A point has one value per variable of the user's model. Hooks are const, because several threads may
/// call them at once. The results of `first_solution` and `solution_near` are checked. The results of `cuts_at` and
/// `objective_bound` are trusted. At least one optimal solution must satisfy all cuts. A cut isn't a constraint:
/// solutions may violate cuts.

/// `std::vector<double> first_solution() const`: the solution to start from.
template <class Hooks> concept gives_first_solution = requires(const Hooks& h) {
    { h.first_solution() } -> std::convertible_to<std::vector<double>>;
};
/// `int branching_priority(variable) const`: the search first branches on columns with the highest priority.
template <class Hooks> concept gives_priorities = requires(const Hooks& h, variable x) {
    { h.branching_priority(x) } -> std::convertible_to<int>;
};
/// `std::vector<constraint> cuts_at(std::span<const double> point) const`: rows that cut off a point of a relaxation.
/// Integer variables may have fractional values in `point`. Called at the root and, less often, at nodes of the tree.
/// Each row must be valid everywhere in the tree.
template <class Hooks> concept gives_cuts = requires(const Hooks& h, std::span<const double> point) {
    { h.cuts_at(point) } -> std::convertible_to<std::vector<constraint>>;
};
/// `double objective_bound() const`: a bound that no solution can beat.
template <class Hooks> concept gives_bound = requires(const Hooks& h) {
    { h.objective_bound() } -> std::convertible_to<double>;
};
/// `std::optional<std::vector<double>> solution_near(std::span<const double> point) const`: a heuristic near a
/// relaxation's point.
template <class Hooks> concept gives_heuristic = requires(const Hooks& h, std::span<const double> point) {
    { h.solution_near(point) } -> std::convertible_to<std::optional<std::vector<double>>>;
};

struct no_hooks {};

} // namespace optpipe::milp
