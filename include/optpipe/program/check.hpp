#pragma once

#include "optpipe/core/compiled.hpp"
#include "optpipe/core/error.hpp"
#include "optpipe/program/ir.hpp"

#include <span>
#include <vector>

namespace optpipe {

/// All errors in programs that run together, with rank and instruction. If the list is empty, the programs terminate
/// under rendezvous semantics, whatever the instructions' durations. The programs also terminate if the lanes of a rank
/// or communicator run in the order of issue. An empty list also means that operations have the right buffers, aligned
/// and without overlaps in use.
///
/// The check is independent of the code that made the programs. A cycle of waiting instructions is printed rank by
/// rank. Takes O(R n) time for n instructions on R ranks.
[[nodiscard]] std::vector<violation> check_programs(std::span<const rank_program> programs);

} // namespace optpipe

#if OPTPIPE_DEFINES(programs)
#include "optpipe/core/error.hpp"
#include "optpipe/program/graph.hpp"
#include "optpipe/program/ir.hpp"
#include "optpipe/program/meaning.hpp"
#include "optpipe/program/memory.hpp"
#include "optpipe/program/shape.hpp"

#include <cstddef>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace optpipe {

OPTPIPE_INLINE std::vector<violation> check_programs(std::span<const rank_program> programs) {
    std::vector<violation> found;
    detail::check_shapes(programs, found);
    if (!found.empty()) return found; // all further checks need indices that are in range
    detail::program_meaning meaning{programs, found};
    if (!found.empty()) return found;
    const program_graph graph{programs, meaning.partners()};
    if (const auto cycle = graph.cycle(); !cycle.empty()) return {{"deadlock", describe_cycle(programs, cycle)}};
    // `serial` also covers devices that run only each communicator's lanes in the order of issue.
    const program_graph serial{programs, meaning.partners(), lane_progress::in_issue_order};
    if (const auto cycle = serial.cycle(); !cycle.empty())
        found.push_back({"deadlock", "where a rank runs its instructions in the order of issue only, " +
                                         describe_cycle(programs, cycle)});
    for (std::size_t r = 0; r < programs.size(); ++r)
        detail::check_order(programs[r], r, graph, meaning.order(r), found);
    return found;
}

} // namespace optpipe
#endif
