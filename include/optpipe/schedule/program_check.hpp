#pragma once

#include "optpipe/core/error.hpp"
#include "optpipe/schedule/program.hpp"
#include "optpipe/schedule/program_graph.hpp"
#include "optpipe/schedule/program_meaning.hpp"
#include "optpipe/schedule/program_memory.hpp"
#include "optpipe/schedule/program_shape.hpp"

#include <cstddef>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace optpipe {

/// Everything that is wrong with programs that are to run together, each with its rank and instruction. Empty: they
/// come to an end under rendezvous semantics, whatever the timing; every operation finds what it needs and nothing
/// else; and no memory is used for two things at once.
///
/// Knows nothing of how the programs were made, so it may be asked about anybody's. A circle of instructions that wait
/// for each other is shown rank by rank. O(R n) for n instructions on R ranks.
[[nodiscard]] inline std::vector<violation> check_programs(std::span<const rank_program> programs) {
    std::vector<violation> found;
    detail::check_shapes(programs, found);
    if (!found.empty()) return found; // what follows trusts every number
    detail::program_meaning meaning{programs, found};
    if (!found.empty()) return found;
    const program_graph graph{programs, meaning.partners()};
    if (const auto cycle = graph.cycle(); !cycle.empty()) return {{"deadlock", describe_cycle(programs, cycle)}};
    for (std::size_t r = 0; r < programs.size(); ++r)
        detail::check_order(programs[r], r, graph, meaning.order(r), found);
    return found;
}

} // namespace optpipe
