#pragma once

#include "optpipe/milp/model.hpp"
#include "optpipe/milp/options.hpp"
#include "optpipe/milp/result.hpp"

#include <concepts>

namespace optpipe::milp {

template <class S> concept has_solve = requires(S& solver, const model& m, const solve_options& options) {
    { solver(m, options) } -> std::same_as<result>;
};
template <class S> concept has_solver_name = requires(const S& solver) {
    { solver.name() } -> std::convertible_to<std::string_view>;
};

/// A solver of mixed-integer linear models.
///
/// *Semantics.* Solving changes neither model nor options. The result says why the solver stopped. The result's
/// incumbent passes `check` with the tolerance of the options. The result's objective is the incumbent's, and its bound
/// holds for all feasible points. `optimal` comes with an incumbent. `infeasible` and `unbounded` are proofs. The
/// solver respects limits as well as it can, and ends soon after a stop request.
template <class S> concept milp_solver = std::copyable<S> && has_solve<S> && has_solver_name<S>;

template <class S> consteval bool check_milp_solver() {
    static_assert(std::copyable<S>, "milp_solver: needs to be copyable");
    static_assert(has_solve<S>, "milp_solver: needs `result operator()(const model&, const solve_options&)`");
    static_assert(has_solver_name<S>, "milp_solver: needs `std::string_view name() const`");
    return milp_solver<S>;
}

} // namespace optpipe::milp
