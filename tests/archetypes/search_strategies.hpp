#pragma once

#include "optpipe/planner/portfolio/search_state.hpp"
#include "optpipe/planner/portfolio/search_strategy.hpp"

#include <cstddef>
#include <string_view>

namespace optpipe::testing::archetype {

/// Finds nothing, which is always allowed.
struct strategy {
    static constexpr std::string_view name = "archetype";
    void operator()(search_state&, const strategy_options&) const {}
};
static_assert(search_strategy<strategy>);
static_assert(!has_traits<strategy>);

} // namespace optpipe::testing::archetype
