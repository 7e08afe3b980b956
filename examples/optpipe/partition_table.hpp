#pragma once

#include <optpipe/core/index.hpp>
#include <optpipe/core/outcome.hpp>
#include <optpipe/pipeline/partition_problem.hpp>
#include <optpipe/planner/partition.hpp>
#include <optpipe/planner/plan_options.hpp>

#include <iosfwd>
#include <string>
#include <vector>

/// Plans of other layouts beside that of `plan_partition`.
namespace program {

struct named_layout {
    std::string name;
    optpipe::outcome<optpipe::partition_plan> result;
};

struct compared_layouts {
    std::vector<named_layout> others;
    /// At least as good as each of the others.
    optpipe::outcome<optpipe::partition_plan> chosen;
};

/// Plans the uniform layout, and `layout` (`optpipe::parse_layout`) unless it is empty; then divides the layers, with
/// the rest of the time limit. The uniform layout has the placement of `layout`, or the first one.
compared_layouts compare_layouts(const optpipe::partition_problem& p, const std::string& layout,
                                 const optpipe::plan_options& how);

/// The layers of a stage, for example "0-3, 5".
std::string stage_layers_text(const optpipe::partition_plan& chosen, optpipe::stage s);

/// Writes tables in Markdown: of the layouts, of their stages, and of their ranks. Contract: there is a chosen plan.
void write_layouts(std::ostream& out, const optpipe::partition_problem& p, const compared_layouts& compared);

} // namespace program
