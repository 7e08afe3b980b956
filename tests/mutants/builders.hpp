#pragma once

#include "archetypes/builders.hpp"
#include "optpipe/core/outcome.hpp"
#include "optpipe/pipeline/problem.hpp"
#include "optpipe/schedule/builders/gpipe.hpp"

#include <string_view>

/// Archetypes that each lack one requirement.
namespace optpipe::testing::mutant {

struct builder_without_copy : archetype::builder {
    builder_without_copy() = default;
    builder_without_copy(builder_without_copy&&) = default;
    builder_without_copy& operator=(builder_without_copy&&) = default;
};
struct builder_without_name {
    template <pipeline_graph Graph>
    constexpr outcome<basic_order<Graph>> operator()(const basic_problem<Graph>& p) const {
        return gpipe(p);
    }
};
struct builder_with_numbered_name : archetype::builder {
    static constexpr int name = 7;
};
struct builder_without_call {
    static constexpr std::string_view name = "mutant";
};
struct builder_with_mutable_call {
    static constexpr std::string_view name = "mutant";
    template <pipeline_graph Graph> constexpr outcome<basic_order<Graph>> operator()(const basic_problem<Graph>& p) {
        return gpipe(p);
    }
};
/// A builder that can't refuse a problem.
struct builder_with_bare_order {
    static constexpr std::string_view name = "mutant";
    template <pipeline_graph Graph> constexpr basic_order<Graph> operator()(const basic_problem<Graph>& p) const {
        return gpipe(p.graph);
    }
};

} // namespace optpipe::testing::mutant
