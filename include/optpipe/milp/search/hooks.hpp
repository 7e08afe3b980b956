#pragma once

#include "optpipe/milp/expression.hpp"

#include <concepts>
#include <optional>
#include <span>
#include <vector>

namespace optpipe::milp {

/// What a user can give a search, each a concept of its own: a type has any of them.
///
/// *Semantics.* Points are in the variables of the model. Hooks may be called from several threads at once, and are
/// const for that. `first_solution` and `solution_near` may be wrong: what they give is checked. `cuts_at` and
/// `objective_bound` are believed: every cut must hold for at least one optimal solution, the same one for all cuts. A
/// cut is no constraint: what solves the model is a solution, whether or not it was asked about.

/// `std::vector<double> first_solution() const`: where to start from.
template <class Hooks> concept gives_first_solution = requires(const Hooks& h) {
    { h.first_solution() } -> std::convertible_to<std::vector<double>>;
};
/// `int branching_priority(variable) const`: columns of the highest priority are branched on first.
template <class Hooks> concept gives_priorities = requires(const Hooks& h, variable x) {
    { h.branching_priority(x) } -> std::convertible_to<int>;
};
/// `std::vector<constraint> cuts_at(std::span<const double> point) const`: rows, the point of a relaxation being given,
/// with fractional integers. Asked at the root and, less often, at nodes of the tree; each row holds in all of
/// it.
template <class Hooks> concept gives_cuts = requires(const Hooks& h, std::span<const double> point) {
    { h.cuts_at(point) } -> std::convertible_to<std::vector<constraint>>;
};
/// `double objective_bound() const`: no solution is better.
template <class Hooks> concept gives_bound = requires(const Hooks& h) {
    { h.objective_bound() } -> std::convertible_to<double>;
};
/// `std::optional<std::vector<double>> solution_near(std::span<const double> point) const`: a heuristic.
template <class Hooks> concept gives_heuristic = requires(const Hooks& h, std::span<const double> point) {
    { h.solution_near(point) } -> std::convertible_to<std::optional<std::vector<double>>>;
};

struct no_hooks {};

} // namespace optpipe::milp
