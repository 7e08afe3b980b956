#pragma once

#include "optpipe/core/compiled.hpp"
#include "optpipe/core/container.hpp"
#include "optpipe/core/outcome.hpp"
#include "optpipe/pipeline/problem.hpp"
#include "optpipe/program/ir.hpp"
#include "optpipe/program/lower/options.hpp"
#include "optpipe/schedule/schedule.hpp"

namespace optpipe {

/// Lowers a schedule to one program per rank. Every lane runs its instructions in the order of the schedule.
/// Instructions wait for their inputs, and for memory to become free.
///
/// Each rank's device arena is as large as the plan's peak, except for rounding. With `part_placement::contiguous`, the
/// arena also has gaps between stashes. The buffers of messages take additional memory. Stages on the same rank pass
/// data on without a message. An activation is sent once to each other rank that needs it. Data held by an edge stays
/// in the device arena until the consumer needs it. When the consumer needs the data, the data is sent and its memory
/// is freed. Attention keys and values of slices are in the device arena, too. The ranks of a group send each other
/// their partial results. A pair is one instruction, with all buffers, waits and messages of its two operations.
/// `check_programs` accepts the programs.
///
/// Refuses a schedule that `validate` or, with `forward_only`, `validate_forward_only` rejects. Refuses a schedule that
/// swaps two stashes at once in full memory, because neither can move first. Refuses a schedule that exceeds a memory
/// limit with the requested placement. Refuses a schedule with an offloaded stash larger than `host_part`. Takes O(b n
/// log n) time for n operations and up to b buffers at once on a rank.
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
#include <optional>
#include <string_view>

namespace optpipe {
namespace detail {

/// Whether the total number of bytes in all stashes and messages of a step fits into an address.
inline bool is_addressable(const problem& p, const lowering_options& options) {
    const auto aligned = static_cast<double>(options.alignment);
    double bytes = 0.0;
    for (const auto& each : p.overlaps)
        bytes += each.memory.value() * options.bytes_per_unit + aligned;
    for (const stage s : p.graph.all_stages()) {
        const auto message = static_cast<double>(options.given_bytes_of_message(s.position()));
        double values = static_cast<double>(options.partial_bytes) + aligned;
        memory_size held = p.costs[s].activation + p.costs[s].weight_stash + 2.0 * p.costs[s].kv;
        p.graph.for_each_edge_out_of(s, [&](const edge& e) {
            values += e.size * message + aligned;
            held += 2.0 * e.held;
        });
        for (const microbatch m : p.graph.all_microbatches()) {
            const auto& f = p.microbatches.factors(s, m);
            bytes += f.memory * held.value() * options.bytes_per_unit + 4.0 * aligned + 4.0 * f.message * values;
        }
    }
    return bytes < most_addressable_bytes;
}

/// Writes the programs. If arenas are too large, writes the programs again with denser packings. The result is empty if
/// the precedences have a cycle.
///
/// Stashes may be split. Values passed between stages can't be split, so the arena may exceed the plan's peak. A second
/// attempt keeps stashes contiguous, and a third attempt packs all buffers densely.
inline std::optional<outcome<per_rank<rank_program>>> lower_with(const problem& p, const schedule& s,
                                                                 lowering_options options, message_lanes grouping) {
    const bool may_split = options.placement == part_placement::exact;
    std::optional<outcome<per_rank<rank_program>>> best;
    arena_packings packings;
    for (;;) {
        lowering work{p, s, options, grouping, packings};
        if (!work.fits_parts())
            return not_executable("a stash that is offloaded is larger than a part of host memory", 0);
        if (!work.write()) return std::nullopt;
        const auto over = work.over_limit();
        const bool is_for_peak = may_split && work.has_planned_copies();
        const bool is_tight = !is_for_peak || work.is_within_peak();
        if (over && !best) best = *over;
        if (!over && (is_tight || !best || !*best)) best = work.programs();
        if ((!over && is_tight) || !packings.empty()) return best;
        if (is_for_peak && options.placement == part_placement::exact) {
            options.placement = part_placement::contiguous;
            continue;
        }
        packings = work.packed(is_for_peak);
        if (packings.empty()) return best;
    }
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
    if (options.forward_only) {
        if (!validate_forward_only(p, s).empty())
            return refuse("the schedule isn't one of forwards alone; validate_forward_only says why");
    } else if (!is_valid(p, s)) {
        return refuse("the schedule breaks a rule of the problem: " + validate(p, s).front().reason);
    }
    if (!detail::is_addressable(p, options))
        return refuse("the stashes and messages of a step can't be addressed in bytes; bytes_per_unit may be too "
                      "large");
    for (const auto grouping : {options.lanes, message_lanes::separate})
        if (auto made = detail::lower_with(p, s, options, grouping)) return *std::move(made);
    return refuse("operations that take no time wait for each other");
}

} // namespace optpipe
#endif
