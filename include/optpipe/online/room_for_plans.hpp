#pragma once

#include "optpipe/core/compiled.hpp"
#include "optpipe/core/index.hpp"
#include "optpipe/execution/arenas.hpp"
#include "optpipe/pipeline/problem.hpp"
#include "optpipe/program/lower/options.hpp"

namespace optpipe {

/// Arena sizes for every plan of the problem within the rank's memory limits. Without a limit, the arenas can hold all
/// data of the rank: stashes, attention keys and values with their gradients, and the data of edges that hold memory.
///
/// The problem has no memory limit for messages. In a chain of stages, a microbatch needs memory for at most one
/// message per stage. A stage uses a microbatch's activation before it makes the gradient. A running operation needs
/// memory for one more message, because its input and its output exist at once. A stage needs room for microbatches + 1
/// messages, or one more if two of its operations can be a pair. Each message is as large as the stage's input or its
/// output, whichever is larger. Gaps occur between messages of different sizes. With gaps, the room is doubled, up to
/// the size of all messages of a step. The doubled room was enough in all measurements, but isn't proven to be enough.
/// If the stages aren't a chain, there is room for all messages and partial results of a step.
///
/// If the sizes of microbatches change from step to step, give each microbatch of `p` its largest factors.
[[nodiscard]] execution::arena_sizes room_for_plans(const problem& p, rank self, const lowering_options& how);

} // namespace optpipe

#if OPTPIPE_DEFINES(online)
#include "optpipe/core/quantity.hpp"
#include "optpipe/core/tolerance.hpp"
#include "optpipe/program/ir.hpp"
#include "optpipe/program/lower/handed_values.hpp"
#include "optpipe/schedule/pair.hpp"

#include <algorithm>
#include <cstddef>
#include <limits>
#include <utility>

namespace optpipe {
namespace detail {

/// Sizes in bytes of the messages that a stage receives and sends for a microbatch, the smaller first.
inline std::pair<std::size_t, std::size_t> message_sizes(const problem& p, stage s, microbatch m,
                                                         const lowering_options& how) {
    const auto in = p.is_first(s) ? 0 : bytes_handed_on(p, s.previous(), m, how);
    const auto out = p.is_last(s) ? in : bytes_handed_on(p, s, m, how);
    return std::minmax({p.is_first(s) ? out : in, out});
}
/// The size in bytes of the data that an edge holds for a microbatch.
inline std::size_t bytes_held(const problem& p, const edge& e, microbatch m, const lowering_options& how) {
    return how.rounded_bytes(p.microbatches.factors(e.from, m).memory * e.held);
}
/// Size in bytes of all messages and partial results of a microbatch that a stage makes or receives.
inline std::size_t all_messages(const problem& p, stage s, microbatch m, const lowering_options& how) {
    const auto own = bytes_handed_on(p, s, m, how);
    auto bytes = 2 * own; // one activation for stages on this rank, and one for stages on other ranks
    p.graph.for_each_edge_out_of(s, [&](const edge& e) { bytes += own + bytes_held(p, e, m, how); });
    p.graph.for_each_edge_into(s, [&](const edge& e) {
        bytes += 2 * bytes_handed_on(p, e.from, m, how) + bytes_held(p, e, m, how);
    });
    p.groups.for_each_member(s, [&](stage member, duration) {
        bytes += 2 * how.scaled(how.partial_bytes, p.microbatches.factors(member, m).message);
    });
    return bytes;
}
/// The largest number of operations of the stage that a rank runs at once.
inline std::size_t most_at_once(const problem& p, stage s) {
    return std::any_of(p.overlaps.begin(), p.overlaps.end(),
                       [s](const overlap& each) { return each.forward == s && each.backward == s; })
               ? 2
               : 1;
}
/// The size in bytes of a rank's memory for messages.
inline std::size_t room_for_messages(const problem& p, rank self, const lowering_options& how) {
    std::size_t one_each = 0; // one message for each microbatch of a stage, and the messages of running operations
    std::size_t all = 0;
    auto smallest = std::numeric_limits<std::size_t>::max();
    std::size_t largest = 0;
    for (const stage s : p.graph.all_stages()) {
        if (p.rank_of(s) != self) continue;
        std::size_t largest_of_stage = 0;
        for (const microbatch m : p.graph.all_microbatches()) {
            const auto [smaller, larger] = message_sizes(p, s, m, how);
            one_each += larger;
            all += all_messages(p, s, m, how);
            smallest = std::min(smallest, smaller);
            largest_of_stage = std::max(largest_of_stage, larger);
        }
        one_each += most_at_once(p, s) * largest_of_stage;
        largest = std::max(largest, largest_of_stage);
    }
    if (!p.graph.is_chain() || !p.groups.empty()) return all;
    const bool has_gaps = smallest != largest || p.microbatches.has_factors();
    return has_gaps ? std::min(2 * one_each, all) : one_each;
}

/// The most data, except messages, that a rank stores in a step, and the number of buffers.
struct stored_data {
    memory_size device{};
    memory_size host{};
    std::size_t buffers = 0;
    /// Whether the device holds buffers other than stashes. Buffers other than stashes are single blocks with gaps
    /// between them.
    bool has_blocks = false;

    void add_block(memory_size size) {
        if (size <= memory_size{}) return;
        device += size;
        ++buffers;
        has_blocks = true;
    }
    /// Adds a stage's data for a microbatch: the stash, attention keys and values with their gradient, and the data of
    /// edges. Activations and gradients wait on the rank that makes them.
    void add(const problem& p, stage s, microbatch m) {
        const auto& factors = p.microbatches.factors(s, m);
        device += factors.memory * std::max(p.costs[s].activation, p.costs[s].weight_stash);
        memory_size moved{};
        for (const auto& option : p.storage[s])
            moved = std::max(moved, option.transfer_size);
        host += factors.memory * moved;
        buffers += buffer_roles;
        for (std::size_t i = 0; i < 2 && p.microbatches.is_slice(m); ++i)
            add_block(p.cost(s, m).kv);
        p.graph.for_each_edge_out_of(s, [&](const edge& e) { add_block(factors.memory * e.held); });
        p.graph.for_each_edge_into(
            s, [&](const edge& e) { add_block(p.microbatches.factors(e.from, m).memory * e.held); });
    }
};

} // namespace detail

OPTPIPE_INLINE execution::arena_sizes room_for_plans(const problem& p, rank self, const lowering_options& how) {
    detail::stored_data all{};
    all.add_block(most_memory_of_pair(p, self));
    for (const stage s : p.graph.all_stages())
        if (p.rank_of(s) == self)
            for (const microbatch m : p.graph.all_microbatches())
                all.add(p, s, m);
    // The size of each buffer is rounded up separately.
    const auto rounding = all.buffers * how.alignment;
    // Contiguous buffers leave gaps. `2 * stored` is enough memory for all allocations of a step, reloads included.
    const auto bytes = [&](memory_size limit, memory_size stored, bool has_gaps) {
        const auto most = std::min(limit + tolerance{}.at(p.memory_scale()), (has_gaps ? 2.0 : 1.0) * stored);
        return static_cast<std::size_t>(most.value() * how.bytes_per_unit) + rounding;
    };
    const bool has_gaps = how.placement == part_placement::contiguous || all.has_blocks;
    return {bytes(p.memory_limit[self], all.device, has_gaps),
            bytes(p.host_memory_limit[self], all.host, how.host_part > 0), detail::room_for_messages(p, self, how)};
}

} // namespace optpipe
#endif
