#pragma once

#include "optpipe/core/outcome.hpp"
#include "optpipe/core/stop_check.hpp"
#include "optpipe/pipeline/graph.hpp"
#include "optpipe/pipeline/problem.hpp"
#include "optpipe/schedule/schedule.hpp"

#include <concepts>
#include <string_view>

namespace optpipe {

template <class B> concept has_name = requires {
    { B::name } -> std::convertible_to<std::string_view>;
};
template <class B, class Graph = any_graph>
concept has_build = requires(const B& build, const basic_problem<Graph>& p) {
    { build(p) } -> std::same_as<outcome<basic_order<Graph>>>;
};

/// Makes an order for a problem: a published schedule, or a policy of your own.
///
/// Semantics: `build(problem)` is an order that `simulate` accepts without regard to memory limits, or a refusal whose
/// sentence says why it doesn't apply. It holds every operation that a valid schedule needs. It depends on the
/// problem alone: no clock, no global state. One that thinks in a list for each rank merges them with `interleave`. One
/// that takes long on large problems takes a `stop_check` too, which it asks every few milliseconds, and refuses itself
/// (`was_stopped`) once that says so; where only its time is up (`is_requested` isn't true), it may return the best so
/// far. Whether it fits the memory is seen by `simulate`; a builder that knows better may refuse itself with
/// `over_memory`. `name` is how `--method` calls it.
template <class B, class Graph = any_graph>
concept schedule_builder = std::copyable<B> && has_name<B> && has_build<B, Graph>;

/// Reports which requirement of a schedule builder a type doesn't meet.
template <class B, class Graph = any_graph> consteval bool check_schedule_builder() {
    static_assert(std::copyable<B>, "schedule builder: must be copyable");
    static_assert(has_name<B>, "schedule builder: needs `static constexpr std::string_view name`");
    static_assert(
        has_build<B, Graph>,
        "schedule builder: needs `outcome<basic_order<Graph>> operator()(const basic_problem<Graph>&) const`");
    return schedule_builder<B, Graph>;
}

template <class B, class Graph = any_graph>
concept has_stoppable_build = requires(const B& build, const basic_problem<Graph>& p, stop_check stop) {
    { build(p, stop) } -> std::same_as<outcome<basic_order<Graph>>>;
};

/// The refusal of a builder that was stopped before it had an order.
[[nodiscard]] constexpr refusal was_stopped() { return does_not_apply("stopped before it had a schedule"); }

} // namespace optpipe
