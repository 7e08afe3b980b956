#pragma once

#include "optpipe/core/compiled.hpp"
#include "optpipe/core/quantity.hpp"
#include "optpipe/core/stop_check.hpp"
#include "optpipe/pipeline/problem.hpp"

namespace optpipe {

/// A lower bound on the objective of every valid schedule of a problem with pairs. The result is at least the lower
/// bound `known`. One linear program counts work and memory × time of all ranks (`pair_area_program`). A pair saves
/// time on its rank, but its microbatches hold stashes for longer on earlier ranks. Returns `known` if no memory is
/// limited, if microbatches differ, or if the linear program is too large. Takes some hundredths of a second at most.
/// Contract: `validate` accepts the problem.
///
/// `stop` is polled before the linear program is solved. After a stop, the result is `known`.
[[nodiscard]] duration pair_area_bound(const problem& p, duration known, stop_check stop = {});

} // namespace optpipe

#if OPTPIPE_DEFINES(planner)
#include "optpipe/planner/bounds/pair_area_program.hpp"

#include <algorithm>
#include <cstddef>

namespace optpipe {

OPTPIPE_INLINE duration pair_area_bound(const problem& p, duration known, stop_check stop) {
    const auto is_limited = [](memory_size limit) { return !limit.is_unlimited(); };
    if (p.overlaps.empty() || !p.microbatches.are_equal() || known.is_unlimited() || known <= duration{} ||
        std::none_of(p.memory_limit.begin(), p.memory_limit.end(), is_limited))
        return known;
    constexpr std::size_t most_work = 200'000; // 100 ranks in v placement, which take 0.02 s
    detail::pair_area_program program{p, known.value()};
    return program.size() <= most_work && !stop() ? std::max(known, duration{program.solve()}) : known;
}

} // namespace optpipe
#endif
