#pragma once

#include "optpipe/planner/board.hpp"
#include "optpipe/planner/part.hpp"

#include <cstddef>
#include <string_view>

namespace optpipe::testing::archetype {

/// Finds nothing, which is always allowed.
struct part {
    static constexpr std::string_view name = "archetype";
    void operator()(search_board&, const part_options&) const {}
};
static_assert(search_part<part>);
static_assert(!has_suits<part> && !has_first_effort<part> && !has_draws<part>);

} // namespace optpipe::testing::archetype

/// Archetypes that lack one requirement each, or have something that isn't quite an ability.
namespace optpipe::testing::mutant {

struct part_without_copy : archetype::part {
    part_without_copy() = default;
    part_without_copy(part_without_copy&&) = default;
    part_without_copy& operator=(part_without_copy&&) = default;
};
struct part_without_name {
    void operator()(search_board&, const part_options&) const {}
};
struct part_with_numbered_name : archetype::part {
    static constexpr int name = 7;
};
struct part_without_call {
    static constexpr std::string_view name = "mutant";
};
struct part_with_mutable_call {
    static constexpr std::string_view name = "mutant";
    void operator()(search_board&, const part_options&) {}
};
/// What it finds has to go to the board.
struct part_with_result {
    static constexpr std::string_view name = "mutant";
    bool operator()(search_board&, const part_options&) const { return true; }
};
struct part_that_suits_nobody : archetype::part {
    static void suits(const problem&) {}
};
struct part_with_bare_effort : archetype::part {
    static double first_effort(const problem&) { return 1.0; }
};

} // namespace optpipe::testing::mutant
