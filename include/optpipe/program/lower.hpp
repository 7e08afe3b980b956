#pragma once

#include "optpipe/core/compiled.hpp"
#include "optpipe/core/container.hpp"
#include "optpipe/core/outcome.hpp"
#include "optpipe/pipeline/problem.hpp"
#include "optpipe/pipeline/require_plain.hpp"
#include "optpipe/program/ir.hpp"
#include "optpipe/program/lower/options.hpp"
#include "optpipe/schedule/schedule.hpp"

namespace optpipe {

/// Lowers a schedule to the programs that run it, one per rank. Every lane keeps the order of the schedule.
/// Instructions wait for their inputs, and for memory that must be freed first. So the programs follow the plan for any
/// timing.
///
/// The device arena of each rank is as large as the peak of the plan, up to rounding of sizes, and, with
/// `part_placement::contiguous`, up to gaps between stashes. The buffers of messages take further memory. Neighbouring
/// stages on one rank pass data on without a message. `check_programs` accepts the programs.
///
/// Refuses a schedule that `validate` rejects (with `forward_only`: `validate_forward_only`). Refuses a schedule that
/// swaps two stashes at one instant in a full memory, as neither can be first. Refuses a schedule that exceeds the
/// limit with the requested placement, or that offloads a stash larger than a part of host memory. O(n log n) for n
/// operations, times the number of buffers that a rank holds at once.
[[nodiscard]] outcome<per_rank<rank_program>> lower(const problem& p, const schedule& s,
                                                    const lowering_options& options = {});

} // namespace optpipe

#if OPTPIPE_DEFINES(programs)
#include "optpipe/core/contract.hpp"
#include "optpipe/program/lower/lowering.hpp"
#include "optpipe/schedule/construct/forward_only.hpp"
#include "optpipe/schedule/time/simulate.hpp"
#include "optpipe/schedule/time/validate.hpp"

#include <cstddef>
#include <string_view>

namespace optpipe {
namespace detail {

/// Whether a step's stashes and messages together stay within the addressable range.
inline bool is_addressable(const problem& p, const lowering_options& options) {
    double bytes = 2.0 * static_cast<double>(options.message_bytes) * static_cast<double>(p.graph.stages());
    for (const auto message : options.boundary_bytes)
        bytes += 2.0 * static_cast<double>(message);
    for (const auto& c : p.costs)
        bytes += (c.activation + c.weight_stash).value() * options.bytes_per_unit +
                 4.0 * static_cast<double>(options.alignment);
    return bytes * static_cast<double>(p.graph.microbatches()) < most_addressable_bytes;
}

} // namespace detail

OPTPIPE_INLINE outcome<per_rank<rank_program>> lower(const problem& p, const schedule& s,
                                                     const lowering_options& options) {
    constexpr std::size_t most_alignment = std::size_t{1} << 20U;
    OPTPIPE_EXPECT(options.alignment > 0 && options.alignment <= most_alignment, "lower: alignment is 1 to 1 MiB");
    OPTPIPE_EXPECT(options.host_part % options.alignment == 0,
                   "lower: parts of host memory end at multiples of the alignment");
    OPTPIPE_EXPECT(options.bytes_per_unit > 0.0, "lower: a unit of memory has more than 0 bytes");
    const auto refuse = [](std::string_view sentence) { return detail::not_executable(sentence, 0); };
    OPTPIPE_EXPECT(!(options.forward_only && options.update), "lower: forwards alone leave nothing to update by");
    OPTPIPE_EXPECT(!(options.forward_only && options.reduce), "lower: forwards alone leave nothing to reduce");
    // Forwards alone don't ask which gradients there would be.
    if (options.forward_only ? !p.is_simple() : !is_plain(p))
        return refuse(std::string{"programs are made"}.append(only_for_plain));
    if (options.forward_only) {
        if (!validate_forward_only(p, s).empty())
            return refuse("the schedule isn't one of forwards alone; validate_forward_only says why");
    } else if (!is_valid(p, s)) {
        return refuse("the schedule breaks a rule of the problem: " + validate(p, s).front().reason);
    }
    if (!detail::is_addressable(p, options))
        return refuse("the stashes and messages of a step can't be addressed in bytes");
    for (const auto grouping : {options.lanes, message_lanes::separate}) {
        detail::arena_packings packings;
        for (const bool is_packed : {false, true}) {
            detail::lowering work{p, s, options, grouping, packings};
            if (!work.fits_parts()) return refuse("a stash that is offloaded is larger than a part of host memory");
            if (!work.write()) break;
            const auto over = work.over_limit();
            if (!over) return work.programs();
            if (is_packed) return *over;
            packings = work.packed();
            if (packings.empty()) return *over;
        }
    }
    return refuse("operations that take no time wait for each other");
}

} // namespace optpipe
#endif
