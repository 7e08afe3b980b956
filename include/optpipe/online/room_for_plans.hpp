#pragma once

#include "optpipe/core/compiled.hpp"
#include "optpipe/core/index.hpp"
#include "optpipe/execution/arenas.hpp"
#include "optpipe/pipeline/problem.hpp"
#include "optpipe/program/lower/options.hpp"

namespace optpipe {

/// Arena sizes with which a rank can run every plan of the problem within its memory limits. If there is no limit, the
/// arenas can hold all data that is ever stored on the rank.
///
/// The problem has no memory limit for messages. At each stage, a microbatch needs memory for at most one message at a
/// time, because its activation is used before its gradient is made. While an operation runs, its microbatch has one
/// more message, because input and output exist at once. Each stage needs room for microbatches + 1 messages, or for
/// microbatches + 2 messages if a pair may consist of two operations of the stage. Each message is as large as the
/// stage's input or its output, whichever is larger. Fragmentation, which occurs if messages differ in size, isn't
/// included.
///
/// If the sizes of microbatches change from step to step, give each microbatch of `p` its largest factors.
[[nodiscard]] execution::arena_sizes room_for_plans(const problem& p, rank self, const lowering_options& how);

} // namespace optpipe

#if OPTPIPE_DEFINES(online)
#include "optpipe/core/quantity.hpp"
#include "optpipe/program/ir.hpp"
#include "optpipe/schedule/pair.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>

namespace optpipe {
namespace detail {

inline memory_size most_of_stash(const problem& p, stage s) {
    auto most = std::max(p.costs[s].activation, p.costs[s].weight_stash);
    for (const auto& option : p.storage[s])
        most = std::max(most, option.held);
    return most;
}
/// The size in bytes of the larger of two messages for a microbatch: the message that a stage receives, and the message
/// that it sends. The factor on a message's size is that of the stage that sends the activation, even if the message is
/// a gradient.
inline std::size_t largest_message(const problem& p, stage s, microbatch m, const lowering_options& how) {
    const auto after = [&](stage from) {
        return how.scaled(how.bytes_of_message(from.position()), p.microbatches.factors(from, m).message);
    };
    return std::max(p.is_first(s) ? 0 : after(stage{s.position() - 1}), p.is_last(s) ? 0 : after(s));
}

/// The largest number of operations of the stage that a rank runs at once.
inline std::size_t most_at_once(const problem& p, stage s) {
    return std::any_of(p.overlaps.begin(), p.overlaps.end(),
                       [s](const overlap& each) { return each.forward == s && each.backward == s; })
               ? 2
               : 1;
}

} // namespace detail

OPTPIPE_INLINE execution::arena_sizes room_for_plans(const problem& p, rank self, const lowering_options& how) {
    auto all = most_memory_of_pair(p, self);
    std::size_t stashes = 0;
    std::size_t messages = 0;
    for (const stage s : p.graph.all_stages()) {
        if (p.rank_of(s) != self) continue;
        stashes += p.graph.microbatches();
        std::size_t largest = 0;
        for (const microbatch m : p.graph.all_microbatches()) {
            all += p.microbatches.factors(s, m).memory * detail::most_of_stash(p, s);
            const auto message = detail::largest_message(p, s, m, how);
            messages += message;
            largest = std::max(largest, message);
        }
        messages += detail::most_at_once(p, s) * largest;
    }
    // The size of each part of a stash is rounded up separately.
    const auto parts = stashes * buffer_roles + (p.overlaps.empty() ? 0 : 1);
    const auto rounding = parts * how.alignment;
    // Contiguous stashes leave gaps of free memory. A rank never needs more memory than if each allocation of a step,
    // including reloads, had memory of its own.
    const auto bytes = [&](memory_size limit, bool has_gaps) {
        const auto most = std::min(limit, (has_gaps ? 2.0 : 1.0) * all);
        return static_cast<std::size_t>(std::ceil(most.value() * how.bytes_per_unit)) + rounding;
    };
    return {bytes(p.memory_limit[self], how.placement == part_placement::contiguous),
            bytes(p.host_memory_limit[self], how.host_part > 0), messages};
}

} // namespace optpipe
#endif
