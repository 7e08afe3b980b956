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

/// Makes an order for a problem, by a published method or by your own policy.
///
/// Semantics: `build(problem)` returns an order that `simulate` accepts without memory limits. A builder that doesn't
/// apply returns a refusal that says why. The order contains every operation of a valid schedule. The order depends
/// only on the problem, not on a clock or global state. If your policy produces one list per rank, merge the lists with
/// `interleave`.
///
/// A slow builder takes a second parameter `stop_check`, and polls it every few milliseconds. Once the check returns
/// true, the builder refuses (`was_stopped`). If only the time limit has expired (`is_requested` is false), the builder
/// may return its best order. `simulate` determines whether an order fits in memory. A builder may refuse with
/// `over_memory` if its order can't fit. `name` is the method's name for `--method`.
template <class B, class Graph = any_graph>
concept schedule_builder = std::copyable<B> && has_name<B> && has_build<B, Graph>;

/// Fails to compile, naming the requirement that the type doesn't meet.
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

/// Whether the builder makes orders for problems that aren't plain, by `static constexpr bool any_graph = true`. For
/// all other builders, `build_schedule` makes the problem plain (`chain_problem`).
template <class B> inline constexpr bool plans_any_graph = requires { requires B::any_graph; };

/// The refusal of a builder that was stopped before it had an order.
[[nodiscard]] constexpr refusal was_stopped() { return does_not_apply("stopped before it had a schedule"); }

} // namespace optpipe
