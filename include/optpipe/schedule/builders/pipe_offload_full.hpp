#pragma once

#include "optpipe/core/stop_check.hpp"
#include "optpipe/schedule/builders/builder.hpp"
#include "optpipe/schedule/builders/builder_parameters.hpp"
#include "optpipe/schedule/builders/pipe_offload.hpp"

#include <array>
#include <cstddef>
#include <string_view>

namespace optpipe {

/// PipeOffload with all stages of each rank offloaded. A rank holds only a few stashes, however deep the pipeline is.
/// Transfers must be fast: a stash's round trip must take no longer than its microbatch's work.
struct pipe_offload_full_builder {
    static constexpr std::string_view name = "po-f";

    /// Number of microbatches in a group, at most R. If the number is 0, the builder chooses 1 without memory limits,
    /// and otherwise the best of R, `half_group` and 1.
    std::size_t group = 0;
    [[nodiscard]] static constexpr std::array<builder_parameter<pipe_offload_full_builder>, 1> parameters() {
        return {{{"g", &pipe_offload_full_builder::group}}};
    }

    template <pipeline_graph Graph>
    [[nodiscard]] constexpr outcome<basic_order<Graph>> operator()(const basic_problem<Graph>& p,
                                                                   stop_check stop = {}) const {
        const auto chunks = p.graph.stages() / p.graph.ranks();
        return detail::offloaded_order(p, {chunks, false}, group, stop);
    }
};
inline constexpr pipe_offload_full_builder pipe_offload_full{};

} // namespace optpipe
