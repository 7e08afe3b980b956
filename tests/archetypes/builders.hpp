#pragma once

#include "optpipe/core/outcome.hpp"
#include "optpipe/pipeline/problem.hpp"
#include "optpipe/schedule/builders/builder.hpp"
#include "optpipe/schedule/builders/gpipe.hpp"

#include <string_view>

namespace optpipe::testing::archetype {

/// The minimal schedule builder.
struct builder {
    static constexpr std::string_view name = "archetype";
    template <pipeline_graph Graph>
    constexpr outcome<basic_order<Graph>> operator()(const basic_problem<Graph>& p) const {
        return gpipe(p);
    }
};

static_assert(schedule_builder<builder> && schedule_builder<builder, graph<2, 2>>);

} // namespace optpipe::testing::archetype
