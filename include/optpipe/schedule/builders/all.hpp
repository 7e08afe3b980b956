#pragma once

#include "optpipe/core/compiled.hpp"
#include "optpipe/core/outcome.hpp"
#include "optpipe/core/stop_check.hpp"
#include "optpipe/pipeline/graph.hpp"
#include "optpipe/pipeline/problem.hpp"
#include "optpipe/schedule/builders/adapipe.hpp"
#include "optpipe/schedule/builders/adaptive.hpp"
#include "optpipe/schedule/builders/builder.hpp"
#include "optpipe/schedule/builders/combined.hpp"
#include "optpipe/schedule/builders/dual_pipe_v.hpp"
#include "optpipe/schedule/builders/dynapipe.hpp"
#include "optpipe/schedule/builders/gis.hpp"
#include "optpipe/schedule/builders/gis_half.hpp"
#include "optpipe/schedule/builders/gpipe.hpp"
#include "optpipe/schedule/builders/graph_1f1b.hpp"
#include "optpipe/schedule/builders/infinipipe.hpp"
#include "optpipe/schedule/builders/interleaved.hpp"
#include "optpipe/schedule/builders/mario.hpp"
#include "optpipe/schedule/builders/one_forward_one_backward.hpp"
#include "optpipe/schedule/builders/pipe_offload.hpp"
#include "optpipe/schedule/builders/pipe_offload_full.hpp"
#include "optpipe/schedule/builders/pipe_offload_half.hpp"
#include "optpipe/schedule/builders/sequence_1f1b.hpp"
#include "optpipe/schedule/builders/v_auto.hpp"
#include "optpipe/schedule/builders/v_half.hpp"
#include "optpipe/schedule/builders/v_min.hpp"
#include "optpipe/schedule/builders/zero_bubble_auto.hpp"
#include "optpipe/schedule/builders/zero_bubble_h1.hpp"
#include "optpipe/schedule/builders/zero_bubble_h2.hpp"
#include "optpipe/schedule/builders/zero_bubble_v.hpp"
#include "optpipe/schedule/construct/uniform_storage.hpp"
#include "optpipe/schedule/schedule.hpp"
#include "optpipe/schedule/time/evaluate.hpp"

#include <concepts>
#include <string_view>
#include <vector>

namespace optpipe {

/// Builders with their usual parameters.
template <class... Builders> struct builder_list {
    constexpr builder_list() = default;
    constexpr explicit builder_list(const Builders&...) {}

    template <class Builder> static constexpr bool contains = (std::same_as<Builder, Builders> || ...);
    /// Calls `visit(builder)` for each builder, in order.
    template <class Visitor> static constexpr void for_each(Visitor& visit) { (visit(Builders{}), ...); }
};

/// The builders for plain problems that choose no storage options, as `optpipe compare` lists them.
inline constexpr builder_list all_builders{gpipe,
                                           one_forward_one_backward,
                                           interleaved,
                                           zero_bubble_h1,
                                           zero_bubble_h2,
                                           zero_bubble_auto,
                                           zero_bubble_v,
                                           v_half,
                                           v_min,
                                           v_auto,
                                           dual_pipe_v,
                                           gis,
                                           gis_half,
                                           pipe_offload,
                                           pipe_offload_half,
                                           pipe_offload_full,
                                           adaptive};

/// Calls `visit(builder)` for each builder, in the order of `all_builders`.
template <class Visitor> constexpr void for_each_builder(Visitor visit) { all_builders.for_each(visit); }

/// The builders that choose storage options themselves.
inline constexpr builder_list storage_builders{adapipe, mario, infinipipe};

template <class Visitor> constexpr void for_each_storage_builder(Visitor visit) { storage_builders.for_each(visit); }

/// The builders for problems that aren't plain. Each of these builders refuses plain problems, for which its schedule
/// would be 1F1B or lack pairs.
inline constexpr builder_list graph_builders{sequence_1f1b, graph_1f1b, dynapipe, combined_1f1b};

template <class Visitor> constexpr void for_each_graph_builder(Visitor visit) { graph_builders.for_each(visit); }

/// The names of `all_builders`, `storage_builders` and `graph_builders`, in this order.
[[nodiscard]] std::vector<std::string_view> builder_names();

#if defined(OPTPIPE_COMPILED)
namespace detail {

template <class Builder>
concept own_builder = decltype(all_builders)::contains<Builder> || decltype(storage_builders)::contains<Builder> ||
                      decltype(graph_builders)::contains<Builder>;

} // namespace detail

// For dynamic extents, the library defines this function for each of its own builders.
template <detail::own_builder Builder>
[[nodiscard]] outcome<schedule> build_schedule(const problem& p, const Builder& build, stop_check stop = {});
#endif

} // namespace optpipe

#if OPTPIPE_DEFINES(schedule)
namespace optpipe {
namespace detail {

// Checked here, because checks in the builders' headers would slow down compilation.
template <class Graph, class... Builders> consteval bool are_builders(const builder_list<Builders...>&) {
    return (schedule_builder<Builders, Graph> && ...);
}
static_assert(are_builders<any_graph>(all_builders) && are_builders<any_graph>(storage_builders) &&
              are_builders<any_graph>(graph_builders));
static_assert(are_builders<graph<2, 2>>(all_builders) && are_builders<graph<2, 2>>(storage_builders) &&
              are_builders<graph<2, 2>>(builder_list{sequence_1f1b, graph_1f1b, dynapipe}));

} // namespace detail

OPTPIPE_INLINE std::vector<std::string_view> builder_names() {
    std::vector<std::string_view> names;
    const auto add = [&](const auto& build) { names.push_back(build.name); };
    for_each_builder(add);
    for_each_storage_builder(add);
    for_each_graph_builder(add);
    return names;
}

} // namespace optpipe
#endif
