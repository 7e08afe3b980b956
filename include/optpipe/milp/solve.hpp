#pragma once

#include "optpipe/milp/model.hpp"
#include "optpipe/milp/options.hpp"
#include "optpipe/milp/result.hpp"
#include "optpipe/milp/search/given_hooks.hpp"
#include "optpipe/milp/search/hooks.hpp"
#include "optpipe/milp/search/witness.hpp"
#include "optpipe/milp/solver.hpp"

#include <concepts>
#include <cstddef>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

namespace optpipe::milp {
namespace search {

/// Runs one search from start to end. Defined in search/run.hpp.
result run(const model& m, const solve_options& options, given_hooks hooks);
/// Runs in a separate arena with `options.threads` threads, at most one per core. If only one thread is asked for, the
/// search runs on the calling thread.
result run_in_own_arena(const model& m, const solve_options& options, given_hooks hooks);

} // namespace search
namespace detail {

template <class Hooks, witness W>
search::given_hooks collect_hooks(const model& m, const Hooks& hooks, const W& known) {
    search::given_hooks given;
    if constexpr (gives_first_solution<Hooks>) given.first_solution = hooks.first_solution();
    if constexpr (gives_priorities<Hooks>)
        for (const variable x : m.all_variables())
            given.priorities.push_back(hooks.branching_priority(x));
    if constexpr (gives_cuts<Hooks>) given.cuts_at = [&hooks](std::span<const double> x) { return hooks.cuts_at(x); };
    if constexpr (gives_heuristic<Hooks>)
        given.solution_near = [&hooks](std::span<const double> x) { return hooks.solution_near(x); };
    if constexpr (gives_bound<Hooks>) given.bound = hooks.objective_bound();
    if constexpr (W::active()) {
        const std::span<const double> point = known.point();
        given.witness.assign(point.begin(), point.end());
        given.witness_lost = [&known](const char* place) { known.cut_off(place); };
    }
    return given;
}

} // namespace detail

/// Runs a search on its own threads, such as `oneapi::tbb::task_arena`.
template <class A> concept search_arena = requires(A& arena, result (*search)()) {
    { arena.execute(search) } -> std::same_as<result>;
};

/// Branch and bound on linear relaxations, combined with conflict search. Runs in the caller's arena, and uses at most
/// the arena's threads.
///
/// Within the options' tolerance, the result's incumbent passes `check` on `m`, and the result's bounds are valid.
template <search_arena Arena, class Hooks = no_hooks, witness W = no_witness>
result solve(Arena& arena, const model& m, const solve_options& options = {}, const Hooks& hooks = {},
             const W& known = {}) {
    return arena.execute([&] { return search::run(m, options, detail::collect_hooks(m, hooks, known)); });
}

/// Solves in a separate arena, or on the calling thread if the options ask for one thread.
template <class Hooks = no_hooks, witness W = no_witness>
result solve(const model& m, const solve_options& options = {}, const Hooks& hooks = {}, const W& known = {}) {
    return search::run_in_own_arena(m, options, detail::collect_hooks(m, hooks, known));
}

/// This library's solver as a value.
struct own_solver {
    result operator()(const model& m, const solve_options& options) const { return solve(m, options); }
    [[nodiscard]] static std::string_view name() { return "OptPipe"; }
};
static_assert(check_milp_solver<own_solver>());

} // namespace optpipe::milp

// The search takes seconds to compile. With a compiled search, files need only the declarations above.
#if !defined(OPTPIPE_COMPILED)
#include "optpipe/milp/search/run.hpp"
#endif
