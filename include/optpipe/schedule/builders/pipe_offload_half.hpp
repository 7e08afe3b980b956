#pragma once

#include "optpipe/core/stop_check.hpp"
#include "optpipe/schedule/builders/builder.hpp"
#include "optpipe/schedule/builders/builder_parameters.hpp"
#include "optpipe/schedule/builders/pipe_offload.hpp"

#include <array>
#include <cstddef>
#include <string_view>

namespace optpipe {

/// PipeOffload with half of the stages of each rank offloaded. If a rank has v stages, the ⌈v/2⌉ stages with the
/// longest lifespans are offloaded. PO-H holds about (v + 2)/(8v) of the stashes of 1F1B. With one stage per rank,
/// every second microbatch is offloaded.
struct pipe_offload_half_builder {
    static constexpr std::string_view name = "po-h";

    /// Number of microbatches in a group, at most R. If the number is 0, the builder chooses 1 without memory limits,
    /// and otherwise the best of R, `half_group` and 1.
    std::size_t group = 0;
    [[nodiscard]] static constexpr std::array<builder_parameter<pipe_offload_half_builder>, 1> parameters() {
        return {{{"g", &pipe_offload_half_builder::group}}};
    }

    template <pipeline_graph Graph>
    [[nodiscard]] constexpr outcome<basic_order<Graph>> operator()(const basic_problem<Graph>& p,
                                                                   stop_check stop = {}) const {
        const auto chunks = p.graph.stages() / p.graph.ranks();
        return detail::offloaded_order(p, {(chunks + 1) / 2, true}, group, stop);
    }
};
inline constexpr pipe_offload_half_builder pipe_offload_half{};

} // namespace optpipe
