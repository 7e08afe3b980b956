#pragma once

#include "optpipe/core/outcome.hpp"
#include "optpipe/core/stop_check.hpp"
#include "optpipe/pipeline/problem.hpp"
#include "optpipe/schedule/builders/adapipe.hpp"
#include "optpipe/schedule/builders/adaptive.hpp"
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
#include <tuple>
#include <variant>
#include <vector>

namespace optpipe {

/// The builders for plain problems that choose no storage options, in the order in which `optpipe compare` lists them.
inline constexpr std::tuple all_builders{gpipe,
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
template <class Visitor> constexpr void for_each_builder(Visitor visit) {
    std::apply([&](const auto&... builders) { (visit(builders), ...); }, all_builders);
}

/// The builders that choose storage options themselves.
inline constexpr std::tuple storage_builders{adapipe, mario, infinipipe};

template <class Visitor> constexpr void for_each_storage_builder(Visitor visit) {
    std::apply([&](const auto&... builders) { (visit(builders), ...); }, storage_builders);
}

/// The builders for problems that aren't plain. These builders refuse plain problems, where the schedule would be 1F1B
/// or have no pairs.
inline constexpr std::tuple graph_builders{sequence_1f1b, graph_1f1b, dynapipe, combined_1f1b};

template <class Visitor> constexpr void for_each_graph_builder(Visitor visit) {
    std::apply([&](const auto&... builders) { (visit(builders), ...); }, graph_builders);
}

/// The names of `all_builders`, `storage_builders` and `graph_builders`, in this order.
[[nodiscard]] inline std::vector<std::string_view> builder_names() {
    std::vector<std::string_view> names;
    const auto add = [&](const auto& build) { names.push_back(build.name); };
    for_each_builder(add);
    for_each_storage_builder(add);
    for_each_graph_builder(add);
    return names;
}

#if defined(OPTPIPE_COMPILED)
namespace detail {

template <class Builders> struct variant_of;
template <class... Builders> struct variant_of<std::tuple<Builders...>> {
    using type = std::variant<Builders...>;
    template <class Builder> static constexpr bool contains = (std::same_as<Builder, Builders> || ...);
};
using all_kinds_of_builders = variant_of<decltype(std::tuple_cat(all_builders, storage_builders, graph_builders))>;

} // namespace detail

/// A builder of this library with its parameters.
using any_builder = detail::all_kinds_of_builders::type;

// For problems with dynamic extents, defined in the library.
[[nodiscard]] outcome<schedule> build_schedule(const problem& p, const any_builder& build, stop_check stop = {});
template <class Builder>
requires detail::all_kinds_of_builders::contains<Builder>
[[nodiscard]] outcome<schedule> build_schedule(const problem& p, const Builder& build, stop_check stop = {}) {
    return build_schedule(p, any_builder{build}, stop);
}
#endif

} // namespace optpipe
