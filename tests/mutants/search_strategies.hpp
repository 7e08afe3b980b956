#pragma once

#include "archetypes/search_strategies.hpp"
#include "optpipe/pipeline/problem.hpp"
#include "optpipe/planner/portfolio/search_state.hpp"
#include "optpipe/planner/portfolio/search_strategy.hpp"

#include <string_view>

/// Archetypes that each lack one requirement, or have `traits` that no portfolio can use.
namespace optpipe::testing::mutant {

struct strategy_without_copy : archetype::strategy {
    strategy_without_copy() = default;
    strategy_without_copy(strategy_without_copy&&) = default;
    strategy_without_copy& operator=(strategy_without_copy&&) = default;
};
struct strategy_without_name {
    void operator()(search_state&, const strategy_options&) const {}
};
struct strategy_with_numbered_name : archetype::strategy {
    static constexpr int name = 7;
};
struct strategy_without_call {
    static constexpr std::string_view name = "mutant";
};
struct strategy_with_mutable_call {
    static constexpr std::string_view name = "mutant";
    void operator()(search_state&, const strategy_options&) {}
};
/// The strategy returns a result, which must be offered to the state instead.
struct strategy_with_result {
    static constexpr std::string_view name = "mutant";
    bool operator()(search_state&, const strategy_options&) const { return true; }
};
struct strategy_with_void_traits : archetype::strategy {
    static void traits(const problem&) {}
};
struct strategy_with_constant_traits : archetype::strategy {
    static constexpr strategy_traits traits{};
};

} // namespace optpipe::testing::mutant
