#pragma once

#include "optpipe/schedule/builders/builder.hpp"
#include "optpipe/schedule/builders/gis.hpp"

#include <string_view>

namespace optpipe {

/// The generalized interleaved schedule with the smallest group that keeps the ranks busy. The group has at least ⌈R/2⌉
/// microbatches. The group is larger if the busiest rank would finish it before one microbatch has run all its
/// forwards, or all its input gradients. The schedule holds about (v + 1)/(2v) of the memory of 1F1B with one stage per
/// rank.
struct gis_half_builder {
    static constexpr std::string_view name = "gis-h";

    template <pipeline_graph Graph>
    [[nodiscard]] constexpr outcome<basic_order<Graph>> operator()(const basic_problem<Graph>& p) const {
        return gis_builder{detail::half_group(p)}(p);
    }
};
inline constexpr gis_half_builder gis_half{};

} // namespace optpipe
