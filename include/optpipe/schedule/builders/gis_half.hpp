#pragma once

#include "optpipe/schedule/builders/builder.hpp"
#include "optpipe/schedule/builders/gis.hpp"

#include <string_view>

namespace optpipe {

/// Generalized interleaved with the smallest group that keeps the ranks busy: ⌈R/2⌉, raised until the group's work on
/// the busiest rank takes as long as one microbatch's forwards, or its input gradients, through all ranks. Holds about
/// (v + 1)/(2v) of the memory that 1F1B of the same model takes with one stage per rank.
struct gis_half_builder {
    static constexpr std::string_view name = "gis-h";

    template <pipeline_graph Graph>
    [[nodiscard]] constexpr outcome<basic_order<Graph>> operator()(const basic_problem<Graph>& p) const {
        return gis_builder{detail::half_group(p)}(p);
    }
};
inline constexpr gis_half_builder gis_half{};

} // namespace optpipe
